// A negotiator, and short words for what it hears and what it answers.

#ifndef TESTS_CC_COORDINATOR_NEGOTIATOR_FIXTURE_H_
#define TESTS_CC_COORDINATOR_NEGOTIATOR_FIXTURE_H_

#include <gtest/gtest.h>

#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/coordinator/negotiator.h"

namespace hvd {

// Three ranks, unless Reset() says otherwise; set 1 holds ranks 1 and 2.
class NegotiatorTest : public testing::Test {
 protected:
  using What = Announcement::What;

  void SetUp() override { Reset(3); }

  void Reset(int size) {
    world_ = {};
    world_.size = size;
    world_.hosts.assign(size, "h");
    world_.process_sets.resize(2);
    world_.process_sets[0].resize(size);
    std::iota(world_.process_sets[0].begin(), world_.process_sets[0].end(), 0);
    world_.process_sets[1] = {1, 2};
    sets_.emplace(world_);
    topology_.emplace(world_.hosts);
    ports_.emplace(world_, *sets_, *topology_);
    negotiator_.emplace(world_, *sets_, config_, *ports_);
  }

  static Signature Tensor(const std::string& name, int64_t n = 1, int set = 0) {
    Signature s;
    s.name = name;
    s.kind = Kind::kAllreduce;
    s.dtype = DType::kFloat32;
    s.shapes = {{n}};
    s.process_set = set;
    return s;
  }

  void Say(int rank, What what, const Signature& s, const std::string& reason = "") {
    negotiator_->Hear(rank, {Report::What::kAnnouncement, rank, {}, {what, s, reason}}, now_);
  }
  void Ready(int rank, const Signature& s) { Say(rank, What::kReady, s); }
  void Refuse(int rank, const Signature& s) { Say(rank, What::kRefused, s, "no"); }
  void Withdraw(int rank, const Signature& s) { Say(rank, What::kWithdrawn, s, "cancelled"); }
  void Drop(int rank, const Signature& s) { Say(rank, What::kDropped, s, "cancelled"); }
  // `rank`, a child of rank 0 without children, or rank 0 itself, sets a bit.
  void Bit(int rank, CacheId id, std::vector<int64_t> sizes = {}) {
    negotiator_->Hear(rank, {Report::What::kSubtreeReady, rank, {{id, std::move(sizes)}}, {}},
                      now_);
  }

  // "name>ranks" of each response, errors with their code: "x!3>0,1", cached ones with their
  // id, "x#1" (and "x#1*" where they enter the cache), parts as "x[0+4]"; "-1" evicts id 1;
  // "x/2>012" runs without rank 2.
  std::vector<std::string> Flush() {
    std::vector<std::string> out;
    for (const Response& o : negotiator_->Flush()) {
      std::string text;
      for (const ResponseTensor& t : o.tensors) {
        text += (text.empty() ? "" : "+") + t.signature->name;
        if (show_ids_ && t.id != 0) text += "#" + std::to_string(t.id) + (t.cache ? "*" : "");
      }
      if (o.part_count >= 0) {
        text += "[" + std::to_string(o.part_begin) + "+" + std::to_string(o.part_count) + "]";
      }
      for (int rank : o.absent) text += "/" + std::to_string(rank);
      for (CacheId id : o.evicted) text += "-" + std::to_string(id);
      if (!o.status.ok()) text += "!" + std::to_string(static_cast<int>(o.status.code()));
      text += ">";
      for (int r : o.only.empty() ? sets_->members(o.process_set) : o.only) {
        text += std::to_string(r);
      }
      out.push_back(text);
      last_text_ = o.status.message();
      last_rows_ = o.sizes;
      last_divisor_ = o.divisor;
      if (!o.tensors.empty()) last_root_ = o.tensors.back().signature->root;
    }
    return out;
  }

  using Lines = std::vector<std::string>;
  World world_;
  Config config_;
  std::optional<ProcessSets> sets_;
  std::optional<Topology> topology_;
  std::optional<Ports> ports_;
  std::optional<Negotiator> negotiator_;
  Negotiator::Time now_{std::chrono::seconds(1000)};
  // Of the last response.
  std::string last_text_;
  int last_divisor_ = 0;
  int last_root_ = -1;
  std::vector<std::vector<int64_t>> last_rows_;
  bool show_ids_ = false;
};

}  // namespace hvd

#endif  // TESTS_CC_COORDINATOR_NEGOTIATOR_FIXTURE_H_
