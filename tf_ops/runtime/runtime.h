// Runtime: one generation of one rank, from init() to shutdown().
//
// It owns the fabric, the queue, and the two threads: control (coordinator/
// control_loop.h) and data (coordinator/executor.h).  No state outlives it, so a process
// may have one after another.
//
// Threads: any, except that Shutdown() must not be called from a request's `done`.

#ifndef TF_OPS_RUNTIME_RUNTIME_H_
#define TF_OPS_RUNTIME_RUNTIME_H_

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "tf_ops/base/config.h"
#include "tf_ops/coordinator/control_loop.h"
#include "tf_ops/coordinator/executor.h"
#include "tf_ops/coordinator/queue.h"
#include "tf_ops/transport/fabric.h"
#include "tf_ops/transport/process_sets.h"
#include "tf_ops/transport/world.h"

namespace hvd {

class Runtime {
 public:
  // The process sets of `world` may be empty: set 0, all ranks, is added.
  Runtime(World world, Config config, std::unique_ptr<Fabric> fabric);
  // As Shutdown(0).
  ~Runtime();

  // Starts the threads; they begin to look for the other ranks.  Throws std::system_error when
  // the system has no thread left.
  void Start();

  // True: `*status` says how the start went.  False: the deadline passed, call again.
  bool WaitReady(Deadline deadline, Status* status);

  // On ok, `request->done` will run exactly once; otherwise never.  A request that is
  // wrong by itself is also announced, so that the other ranks do not wait for it.
  Status Enqueue(std::shared_ptr<Request> request, uint64_t* id);

  // Tells the other ranks that this one cannot take part, so that they do not wait for it.
  void Refuse(const Signature& signature, const std::string& reason);

  // Withdraws a request that is not scheduled yet; `done` still runs.
  void Cancel(uint64_t id);

  // Ends this rank (CONTRACT: "Leaving") and waits for both threads.  Idempotent; a second
  // call with another status than 0 hurries the first along, by an abort.
  // FailedPrecondition: called from `done`.  DeadlineExceeded: it goes on; call again.
  Status Shutdown(int exit_status, Deadline deadline = {});

  const World& world() const { return world_; }
  const ProcessSets& process_sets() const { return sets_; }
  // Why this runtime can do no more, or ok.
  Status failure() const { return loop_.failure(); }
  const Counters& counters() const { return loop_.counters(); }

 private:
  // What is wrong with it as things stand on this rank.
  Status Check(Signature* signature) const;
  Status CheckChange(const Signature& signature) const;
  void ControlThread();
  void DataThread();
  void SayThatOneThreadIsOver();
  void LogCounters() const;

  const World world_;
  ProcessSets sets_;
  const Config config_;
  const std::unique_ptr<Fabric> fabric_;
  RequestQueue queue_;
  Executor executor_;
  ControlLoop loop_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool started_ = false;  // Fabric::Start is over, and `start_` says how
  Status start_;
  int threads_over_ = 0;

  std::mutex shutdown_mutex_;  // one Shutdown() at a time
  std::thread control_thread_;
  std::thread data_thread_;
  std::thread::id thread_ids_[2];  // of both; set once, by Start()
};

}  // namespace hvd

#endif  // TF_OPS_RUNTIME_RUNTIME_H_
