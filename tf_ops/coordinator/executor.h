// Executor: runs the ordered stream on the data thread.
//
// Responses are launched one after another; each completes by an event that comes back
// to the same thread, so a device may finish later than it was launched.  Host calls
// complete inside the launch.  A request that runs in parts ends with the last of them.
//
// Threads: Run() is the data thread's; the rest the control thread's.

#ifndef TF_OPS_COORDINATOR_EXECUTOR_H_
#define TF_OPS_COORDINATOR_EXECUTOR_H_

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "tf_ops/base/config.h"
#include "tf_ops/base/spinner.h"
#include "tf_ops/collectives/collective.h"
#include "tf_ops/coordinator/message.h"
#include "tf_ops/coordinator/queue.h"
#include "tf_ops/coordinator/stream_runner.h"
#include "tf_ops/fusion/staging.h"
#include "tf_ops/transport/collective_call.h"
#include "tf_ops/transport/fabric.h"
#include "tf_ops/transport/process_sets.h"
#include "tf_ops/transport/world.h"

namespace hvd {

class Executor final : public StreamRunner {
 public:
  struct Hooks {
    // The data plane failed.  The answer must be Abort(), with this or a better reason.
    std::function<void(const Status&)> on_failure;
    // One posted response is over.
    std::function<void()> on_progress;
  };

  // All outlive this object.
  Executor(const World& world, const ProcessSets& sets, const Config& config, Fabric* fabric,
           RequestQueue* queue, Hooks hooks);

  void Post(Response response, std::vector<std::shared_ptr<Request>> requests) override;
  int in_flight() const override { return in_flight_; }
  std::optional<Running> running() const override;
  void Abort(const Status& why) override;

  // Run() returns when all that is posted is over.
  void Finish();

  void Run();

 private:
  struct Work {
    Response response;
    std::vector<std::shared_ptr<Request>> requests;
    std::shared_ptr<Transport> transport;  // until it is over, though its set may go
    Status status;                         // once completed
    bool launched = false;                 // the data plane had it
    bool aborted = false;  // `status` is the reason of an abort, which names no tensor
  };

  void Launch(std::unique_ptr<Work> work);
  Status RunGeneric(Transport& transport, const CollectiveCall& call);
  void Complete(std::unique_ptr<Work> work);
  Status BuildCall(const Work& work, CollectiveCall* call);
  Status AddRequest(Request* request, const Around& around, CollectiveCall* call);
  // Of the members that take part, ascending.
  std::vector<int> PlacesOfThere(const Response& response) const;
  // From here on the ranks of `call` are those that take part.
  void LeaveOut(const Response& response, CollectiveCall* call) const;
  std::shared_ptr<Transport> TransportFor(int process_set);
  // The reason of Abort(), waiting for it when it has not come yet.
  Status AwaitAbort();

  const World& world_;
  const ProcessSets& sets_;
  const Config& config_;
  Fabric* const fabric_;
  RequestQueue* const queue_;
  const Hooks hooks_;

  // The data thread's.
  Staging staging_;
  std::map<int, std::shared_ptr<Transport>> transports_;  // by process set
  Spinner spinner_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Work>> posted_;
  std::deque<std::unique_ptr<Work>> completed_;
  Work* running_ = nullptr;  // in the data plane
  Status aborted_;
  bool finishing_ = false;
  std::atomic<int> in_flight_{0};
  std::atomic<int> offered_{0};  // in posted_ and completed_
};

}  // namespace hvd

#endif  // TF_OPS_COORDINATOR_EXECUTOR_H_
