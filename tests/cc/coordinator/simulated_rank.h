// What a simulated rank has in place of sockets and a data plane.
//
// Threads: one, which plays all ranks.

#ifndef TESTS_CC_COORDINATOR_SIMULATED_RANK_H_
#define TESTS_CC_COORDINATOR_SIMULATED_RANK_H_

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/base/config.h"
#include "tf_ops/coordinator/control_loop.h"
#include "tf_ops/coordinator/queue.h"
#include "tf_ops/coordinator/stream_runner.h"
#include "tf_ops/transport/fabric.h"
#include "tf_ops/transport/process_sets.h"
#include "tf_ops/transport/world.h"

namespace hvd {

// One rank's end of all its links.  Frames lie in the receiver's mailbox, one per sender.
struct Mail {
  std::map<int, std::deque<ControlEvent>> from;
  bool bell = false;

  bool any() const {
    return bell || std::any_of(from.begin(), from.end(),
                               [](const auto& item) { return !item.second.empty(); });
  }
};

class SimulatedFabric final : public Fabric, public ControlChannel {
 public:
  // `watches`: the end of a neighbor shows by itself.
  SimulatedFabric(int rank, std::vector<Mail>* mail, bool watches = true)
      : rank_(rank), mail_(*mail), watches_(watches) {}

  Status Start(Deadline) override { return Status::Ok(); }
  ControlChannel& control() override { return *this; }
  std::unique_ptr<Transport> NewTransport(std::vector<int>) override { return nullptr; }
  void Abort(const Status&) override {}

  void Send(int peer, std::string frame) override {
    mail_[peer].from[rank_].push_back({ControlEvent::Type::kFrame, rank_, std::move(frame), {}});
  }
  ControlEvent WaitAny(Deadline) override { return {}; }
  void Wake() override { mail_[rank_].bell = true; }
  bool Watches(int) const override { return watches_; }
  void Finish(Deadline) override {}

 private:
  const int rank_;
  std::vector<Mail>& mail_;
  const bool watches_;
};

// Runs nothing, some time later, in order.
class SimulatedRunner final : public StreamRunner {
 public:
  struct Work {
    Response response;
    std::vector<std::shared_ptr<Request>> requests;
  };
  void Post(Response response, std::vector<std::shared_ptr<Request>> requests) override {
    posted.push_back({std::move(response), std::move(requests)});
  }
  int in_flight() const override { return static_cast<int>(posted.size()); }
  std::optional<Running> running() const override { return std::nullopt; }
  void Abort(const Status& why) override { aborted = why; }

  std::deque<Work> posted;
  Status aborted;
};

// A rank's control plane, once Begin() has made it; it stays where it is from then on.
struct SimulatedRank {
  World world;
  std::unique_ptr<ProcessSets> sets;
  std::unique_ptr<SimulatedFabric> fabric;
  std::unique_ptr<RequestQueue> queue;
  SimulatedRunner runner;
  std::unique_ptr<ControlLoop> loop;

  void Begin(const World& job, int rank, const Config& config, std::vector<Mail>* mail,
             Clock::time_point now, bool watches = true) {
    world = job;
    world.rank = rank;
    sets = std::make_unique<ProcessSets>(world);
    fabric = std::make_unique<SimulatedFabric>(rank, mail, watches);
    queue = std::make_unique<RequestQueue>(1, [mail, rank] { (*mail)[rank].bell = true; });
    loop = std::make_unique<ControlLoop>(world, sets.get(), config, fabric.get(), queue.get(),
                                         &runner);
    loop->Begin(now);
  }
};

using Called = std::pair<int, std::string>;  // process set, name

// And the program that it runs.
struct Rank : SimulatedRank {
  int steps = 0;  // it joins after so many, where ranks join
  int step = 0;
  bool joined = false;
  std::vector<Signature> to_do;  // of this step, in this rank's order
  std::map<Called, int> times;   // how often it came to a name
  std::map<uint64_t, Called> pending;
  std::set<uint64_t> to_give_up;                 // of pending
  std::map<uint64_t, const Request*> gradients;  // of pending
  int removing = 0;                              // the set whose removal is of this step
  uint64_t last_run = 0;
  bool stopped = false;  // Stop() was called
  bool over = false;     // its loop has ended
  bool dead = false;
};

}  // namespace hvd

#endif  // TESTS_CC_COORDINATOR_SIMULATED_RANK_H_
