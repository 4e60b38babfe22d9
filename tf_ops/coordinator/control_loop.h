// ControlLoop: the control thread.  It carries announcements to the coordinator and the
// stream back, notices lost ranks, and ends things in order or by abort.  On rank 0 it is
// also the coordinator, around the pure Negotiator.
//
// Nothing is polled: the thread sleeps in ControlChannel::WaitAny until a frame, a bell or
// a timer comes, and timers run only while something waits.
//
// Threads: Run() is the control thread's; the rest any.

#ifndef TF_OPS_COORDINATOR_CONTROL_LOOP_H_
#define TF_OPS_COORDINATOR_CONTROL_LOOP_H_

#include <atomic>
#include <mutex>
#include <optional>
#include <vector>

#include "tf_ops/base/config.h"
#include "tf_ops/coordinator/executor.h"
#include "tf_ops/coordinator/message.h"
#include "tf_ops/coordinator/negotiator.h"
#include "tf_ops/coordinator/queue.h"
#include "tf_ops/transport/fabric.h"
#include "tf_ops/transport/world.h"

namespace hvd {

class ControlLoop {
 public:
  // All outlive this object.
  ControlLoop(const World& world, const Config& config, Fabric* fabric, RequestQueue* queue,
              Executor* executor);

  // Returns when Stop() was called and all that was scheduled is over.
  void Run();

  // This rank ends: 0 in order, anything else takes the job down.  Does not wait.
  void Stop(int exit_status);

  // The data plane failed.  The abort follows.
  void ReportFailure(const Status& status);

  // The executor got on; needed only while a round is held back for it.
  void OnProgress();

  // Why this runtime can do no more, or ok.
  Status failure() const;

 private:
  using Time = Clock::time_point;

  bool is_coordinator() const { return world_.rank == 0; }
  Deadline NextTimer() const;
  void OnEvent(const ControlEvent& event);
  void OnFrame(int peer, const std::string& bytes);
  void OnFrameAfterEnd(int peer, const Frame& frame);
  void OnClosed(int peer, const std::string& how);
  void OnGoodbye(int peer);
  void OnCoordinatorLeft();
  void SendAnnouncements();
  void Negotiate();
  void FlushStream();
  void Deliver(std::vector<Response> responses);
  void BeginStop();
  void OnTimer();
  void LookAtReport(Time now);
  void SendHeartbeats(Time now);
  void Abort(const Status& reason);
  void SendFrame(int peer, Frame frame);

  const World& world_;
  const Config& config_;
  Fabric* const fabric_;
  ControlChannel& control_;
  RequestQueue* const queue_;
  Executor* const executor_;
  std::vector<int> peers_;  // that this rank negotiates with

  // The control thread's.
  Negotiator negotiator_;                // used on rank 0
  std::optional<Time> gathering_since_;  // when the first tensor of this round became ready
  std::vector<bool> gone_;               // by rank: said goodbye, or rank 0 left
  std::vector<bool> remote_;             // by rank: on another host, so heartbeats are needed
  std::vector<Time> heard_;              // by rank: when it last said anything
  Time next_heartbeat_{};
  Time next_inspection_{};
  uint64_t last_sequence_ = 0;  // of the stream
  bool stopping_ = false;
  bool ended_ = false;              // nothing more will be negotiated
  bool aborted_ = false;            // ended, and badly
  std::optional<Status> reported_;  // by the data plane
  Time report_deadline_{};          // how long a better reason may take to come

  std::atomic<bool> wants_progress_{false};
  mutable std::mutex mutex_;
  Status failure_;                  // guarded by mutex_
  std::optional<int> stop_status_;  // guarded by mutex_
  std::optional<Status> report_;    // guarded by mutex_
};

}  // namespace hvd

#endif  // TF_OPS_COORDINATOR_CONTROL_LOOP_H_
