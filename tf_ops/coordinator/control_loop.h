// ControlLoop: the control thread.  It carries reports up the tree of ranks and the stream
// down, notices lost ranks, and ends things in order or by abort.  On rank 0 it is also the
// coordinator, around the pure Negotiator.
//
// At rest nothing is polled: the thread sleeps in ControlChannel::WaitAny until a frame, a bell or
// a timer comes, and timers run only while something waits.  Only right after an event it looks
// for the next one for a while (Spinner).
//
// Threads: Run() is the control thread's; the rest any.

#ifndef TF_OPS_COORDINATOR_CONTROL_LOOP_H_
#define TF_OPS_COORDINATOR_CONTROL_LOOP_H_

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/base/config.h"
#include "tf_ops/base/spinner.h"
#include "tf_ops/coordinator/cache.h"
#include "tf_ops/coordinator/counters.h"
#include "tf_ops/coordinator/frame_check.h"
#include "tf_ops/coordinator/liveness.h"
#include "tf_ops/coordinator/message.h"
#include "tf_ops/coordinator/negotiator.h"
#include "tf_ops/coordinator/ports.h"
#include "tf_ops/coordinator/queue.h"
#include "tf_ops/coordinator/relay.h"
#include "tf_ops/coordinator/run_watch.h"
#include "tf_ops/coordinator/stream_runner.h"
#include "tf_ops/transport/fabric.h"
#include "tf_ops/transport/process_sets.h"
#include "tf_ops/transport/topology.h"
#include "tf_ops/transport/world.h"

namespace hvd {

class ControlLoop {
 public:
  // All outlive this object.
  ControlLoop(const World& world, ProcessSets* sets, const Config& config, Fabric* fabric,
              RequestQueue* queue, StreamRunner* runner);

  using Time = Clock::time_point;

  // Returns when Stop() was called and all that was scheduled is over.
  void Run();

  // What Run() is made of; a simulation calls them in its place, with a time of its own.
  void Begin(Time now);
  // Takes `events` in, then does all that is due.  False: this was the last turn.
  bool Turn(const std::vector<ControlEvent>& events, Time now);
  // When the next turn is due although nothing happens.
  Deadline NextTimer() const;

  // This rank ends: 0 in order, anything else takes the job down, also after a 0 that has
  // not come to its end.  Does not wait.
  void Stop(int exit_status);

  // The data plane failed.  The abort follows.
  void ReportFailure(const Status& status);

  // The runner got on; needed only while a round is held back for it.
  void OnProgress();

  // Why this runtime can do no more, or ok.
  Status failure() const;

  const Counters& counters() const { return counters_; }

 private:
  using Key = std::pair<int, std::string>;  // process set, name

  // A request whose last part has not come yet.
  struct InParts {
    std::shared_ptr<Request> request;
    int64_t next = 0;  // where the next part begins
  };

  bool is_coordinator() const { return world_.rank == 0; }
  int parent() const { return topology_.parent(world_.rank); }
  // The rank that the stream comes from.
  int source() const { return is_coordinator() ? world_.rank : parent(); }
  // The next event, or a kTimeout by NextTimer().
  ControlEvent NextEvent();
  void OnEvent(const ControlEvent& event);
  void OnFrame(int peer, const std::string& bytes);
  void OnNegotiation(int peer, Frame frame);
  void SendReports();
  void Negotiate();
  void FlushStream(bool all);
  // The next piece of the stream: to those below, and to this rank.
  void Follow(std::vector<Response> responses);
  // Takes its place in the stream and in the cache; not ok: it has none there.
  Status Admit(Response* response);
  // Adds or removes a process set where the response says so.
  Status ChangeSets(const Response& response);
  void Forward(const std::vector<Response>& responses);
  void Deliver(Response response);
  // The request of tensor `i`, scheduled; not ok: there is none that fits, or it has ended.
  Status Match(const Response& response, size_t i, std::shared_ptr<Request>* request);
  // Ends it by the runner, which may still be in its buffers.
  void EndScheduled(std::shared_ptr<Request> request, const Status& status);
  // Whether the runner has as many responses; if so, OnProgress() will wake this thread.
  bool RunnerHas(int responses);
  void OnTimer();
  // Whether there is something to look at from time to time: what waits; what runs.
  bool Inspects() const;
  bool WatchesRunner() const;
  void LookAtReport();
  void CheckLiveness();
  void SendFrame(int peer, Frame frame);
  void SendBytes(int peer, std::string bytes);

  // How a rank ends (control_ends.cc).
  void HeedStop();
  void OnClosed(int peer, const std::string& how);
  void OnGoodbye(int rank);
  void OnFarewell(int rank);
  void OnCutOff(int rank);
  void CutOffChildren(int because);
  void Abort(const Status& reason);
  // Whether this rank has ended, all below it run nothing any more, and its thread may end.
  bool MayGo();

  const World& world_;
  ProcessSets* const sets_;
  const Config& config_;
  Fabric* const fabric_;
  ControlChannel& control_;
  RequestQueue* const queue_;
  StreamRunner* const runner_;
  const Topology topology_;
  const std::vector<int> peers_;  // parent and children

  // The control thread's.
  RunWatch run_watch_;
  Spinner spinner_;
  Ports ports_;
  Time now_{};  // of this turn
  Cache cache_;
  FrameCheck check_;
  Relay relay_;
  Negotiator negotiator_;                // used on rank 0
  std::optional<Time> gathering_since_;  // when the first tensor of this round became ready
  std::map<Key, InParts> in_parts_;
  Liveness liveness_;
  std::vector<bool> let_go_;  // by rank: it was sent its farewell
  std::vector<bool> over_;    // by rank: it runs nothing any more; its end is no loss
  bool said_over_ = false;
  Time next_inspection_{};
  uint64_t last_sequence_ = 0;  // of the stream
  bool stopping_ = false;
  bool ended_ = false;              // nothing more will be negotiated
  bool aborted_ = false;            // ended, and badly
  std::optional<Status> reported_;  // by the data plane
  Time report_deadline_{};          // how long a better reason may take to come

  Counters counters_;
  std::atomic<bool> wants_progress_{false};
  mutable std::mutex mutex_;
  Status failure_;                  // guarded by mutex_
  std::optional<int> stop_status_;  // guarded by mutex_
  std::optional<Status> report_;    // guarded by mutex_
};

}  // namespace hvd

#endif  // TF_OPS_COORDINATOR_CONTROL_LOOP_H_
