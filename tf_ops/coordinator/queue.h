// RequestQueue: the requests in flight on this rank, by name.
//
// Callers put requests in from any thread; the control thread takes out what is to be
// announced and marks what is scheduled; the data thread finishes.  One lock, held for a
// few lines at a time and never while `done` runs.

#ifndef TF_OPS_COORDINATOR_QUEUE_H_
#define TF_OPS_COORDINATOR_QUEUE_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tf_ops/coordinator/cache.h"
#include "tf_ops/coordinator/key.h"
#include "tf_ops/coordinator/message.h"
#include "tf_ops/coordinator/request.h"

namespace hvd {

// How a request ends that can no longer run: gradients may differ (CONTRACT: "Leaving").
struct Ending {
  Status general;
  Status gradient;

  explicit Ending(Status s) : general(s), gradient(std::move(s)) {}
  Ending(Status g, Status of_gradients)
      : general(std::move(g)), gradient(std::move(of_gradients)) {}
  const Status& For(const Signature& s) const { return s.gradient ? gradient : general; }
};

class RequestQueue {
 public:
  // Ids are those of `generation` alone, so that a late Cancel() meets no stranger.
  // `wake` is called, without the lock, when the control thread has something to take.
  RequestQueue(uint64_t generation, std::function<void()> wake)
      : wake_(std::move(wake)), last_id_(generation << 40) {}

  // Any thread.  Not ok: `done` will not run.  InvalidArgument: the name is in flight.
  // After Close(): its ending.
  Status Add(std::shared_ptr<Request> request, uint64_t* id);

  // Any thread.  This rank's request was wrong; the others must not wait for it.
  void Refuse(const Signature& signature, const std::string& reason);

  // Any thread.  Unknown ids and requests already scheduled are left alone.
  void Cancel(uint64_t id);

  // Control thread: what this rank has to report, in the order it happened; by its cache id
  // what is in `cache`.
  std::vector<Report> TakeReports(int rank, const Cache& cache);

  // Control thread: this has left the cache.  A request that was reported by `id` and is not
  // scheduled is reported again.
  void ReportAgain(int process_set, std::string_view name, CacheId id);

  // Control thread.  Null when this rank has no such request waiting.
  std::shared_ptr<Request> Schedule(int process_set, std::string_view name);

  // Takes the request out and runs its `done`.
  void Finish(const std::shared_ptr<Request>& request, const Status& status);

  // Control thread: from now on Add() fails so.  Only the first call counts.
  void Close(const Ending& ending);

  // Control thread: nothing can be added on this process set any more, and what is not
  // scheduled on it ends.
  void CloseSet(int process_set, const Status& why);

  // Control thread: ends all requests that nobody was told of, or all not scheduled.
  void FailQueued(const Ending& ending);
  void FailUnscheduled(const Ending& ending);

 private:
  // One line to report, of a request or of a refusal that never was one.
  struct Outgoing {
    Announcement::What what;
    std::shared_ptr<Request> request;
    std::unique_ptr<Announcement> refusal;  // where there is no request

    const Signature& signature() const {
      return request != nullptr ? request->signature : refusal->signature;
    }
  };

  // What is to be told, each line of a request in its next state; a cancelled one that nobody
  // has heard of is out, and its line says so.
  std::vector<Outgoing> TakeLines();
  void FailWhere(const Ending& ending, bool announced_too);
  // Takes what is not scheduled out, in the order it came, where `which` says so.  REQUIRES: mutex_
  // is held.
  std::vector<std::shared_ptr<Request>> TakeOut(const std::function<bool(const Request&)>& which);
  void End(const std::vector<std::shared_ptr<Request>>& requests, const Ending& ending);
  // MonitoredTrainingSession swallows OutOfRange, so the user hears of it here, once.
  void SayThatTrainingEnds(const Status& status);

  const std::function<void()> wake_;
  std::mutex mutex_;
  std::unordered_map<KeyView, std::shared_ptr<Request>, KeyHash> in_flight_;  // views of its names
  std::unordered_map<uint64_t, std::shared_ptr<Request>> by_id_;
  std::vector<Outgoing> outbox_;
  std::unique_ptr<Ending> closed_;
  std::map<int, Status> closed_sets_;
  uint64_t last_id_;
  std::atomic<bool> said_that_training_ends_{false};
};

}  // namespace hvd

#endif  // TF_OPS_COORDINATOR_QUEUE_H_
