#include "tf_ops/coordinator/run_watch.h"

#include <algorithm>

#include "tf_ops/base/strings.h"

namespace hvd {

Status RunWatch::Look(const std::optional<StreamRunner::Running>& running, Time now,
                      std::vector<std::string>* warnings) {
  if (!running) return Status::Ok();
  const bool got_on = running->sequence != sequence_ || running->moved != moved_;
  if (got_on) {
    sequence_ = running->sequence;
    moved_ = running->moved;
    since_ = warned_ = now;
    return Status::Ok();
  }
  const auto text = [&](const std::vector<std::string>& others) {
    const auto still = std::chrono::duration_cast<std::chrono::seconds>(now - since_).count();
    return StrCat(running->first->Title(), " has stood still for ", still, " s and waits for ",
                  others.size() > 1 ? "one of " : "", Join(others, 8));
  };
  const bool ends =
      config_.stall_shutdown_time_s > 0 && now - since_ >= Seconds(config_.stall_shutdown_time_s);
  const bool warns =
      !config_.stall_check_disable && now - warned_ >= Seconds(config_.stall_check_time_s);
  if (!ends && !warns) return Status::Ok();
  const std::vector<std::string> others = Others(*running);
  if (others.empty()) return Status::Ok();  // this rank itself is slow, and nobody waits with it
  if (ends) {
    return Status::DeadlineExceeded(StrCat(text(others), " (HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=",
                                           config_.stall_shutdown_time_s, ")"));
  }
  warned_ = now;
  warnings->push_back(
      StrCat(text(others), ", which lives but is stopped or slow; this is only a warning"));
  return Status::Ok();
}

std::vector<std::string> RunWatch::Others(const StreamRunner::Running& running) const {
  std::vector<std::string> others;
  for (int rank : sets_.members(running.first->process_set)) {
    const bool absent = std::binary_search(running.absent.begin(), running.absent.end(), rank);
    if (rank != world_.rank && !absent) others.push_back(world_.RankText(rank));
  }
  return others;
}

}  // namespace hvd
