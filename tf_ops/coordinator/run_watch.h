// RunWatch: whether what the data plane runs gets on.
//
// A call that moves nothing for long waits for a rank that lives, but is stopped or slow.  A large
// one over a slow wire moves all the time and is let alone, however long it takes.
//
// Pure: no clock.  Threads: the control thread.

#ifndef TF_OPS_COORDINATOR_RUN_WATCH_H_
#define TF_OPS_COORDINATOR_RUN_WATCH_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tf_ops/base/config.h"
#include "tf_ops/base/deadline.h"
#include "tf_ops/coordinator/stream_runner.h"
#include "tf_ops/transport/process_sets.h"
#include "tf_ops/transport/world.h"

namespace hvd {

class RunWatch {
 public:
  using Time = Clock::time_point;

  // All outlive this object.
  RunWatch(const World& world, const ProcessSets& sets, const Config& config)
      : world_(world), sets_(sets), config_(config) {}

  // Whether anybody wants to be told.
  bool wanted() const { return !config_.stall_check_disable || config_.stall_shutdown_time_s > 0; }

  // Looks at what runs.  Not ok: it has stood still for too long (stall shutdown).
  Status Look(const std::optional<StreamRunner::Running>& running, Time now,
              std::vector<std::string>* warnings);

 private:
  // The ranks that take part, but this one.
  std::vector<std::string> Others(const StreamRunner::Running& running) const;

  const World& world_;
  const ProcessSets& sets_;
  const Config& config_;
  // What was seen last, and since when it stands so.
  uint64_t sequence_ = 0;
  uint64_t moved_ = 0;
  Time since_{};
  Time warned_{};
};

}  // namespace hvd

#endif  // TF_OPS_COORDINATOR_RUN_WATCH_H_
