#include "tf_ops/runtime/runtime.h"

#include <numeric>
#include <utility>

#include "tf_ops/base/log.h"
#include "tf_ops/collectives/collective.h"

namespace hvd {
namespace {

World Completed(World world) {
  if (world.process_sets.empty()) {
    std::vector<int> all(world.size);
    std::iota(all.begin(), all.end(), 0);
    world.process_sets.push_back(std::move(all));
  }
  world.hosts.resize(world.size);
  return world;
}

}  // namespace

Runtime::Runtime(World world, Config config, std::unique_ptr<Fabric> fabric)
    : world_(Completed(std::move(world))),
      sets_(world_),
      config_(std::move(config)),
      fabric_(std::move(fabric)),
      queue_(world_.generation, [this] { fabric_->control().Wake(); }),
      executor_(world_, sets_, config_, fabric_.get(), &queue_,
                {[this](const Status& status) { loop_.ReportFailure(status); },
                 [this] { loop_.OnProgress(); }}),
      loop_(world_, &sets_, config_, fabric_.get(), &queue_, &executor_) {}

Runtime::~Runtime() { (void)Shutdown(0); }

void Runtime::Start() {
  data_thread_ = std::thread([this] { DataThread(); });
  try {
    control_thread_ = std::thread([this] { ControlThread(); });
  } catch (...) {  // the system has no thread left
    executor_.Finish();
    data_thread_.join();
    throw;
  }
  thread_ids_[0] = control_thread_.get_id();
  thread_ids_[1] = data_thread_.get_id();
}

void Runtime::ControlThread() {
  const Status status = fabric_->Start(Deadline::After(Seconds(config_.start_timeout_s)));
  if (!status.ok()) {
    queue_.Close(Ending(status));
    queue_.FailQueued(Ending(status));
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    started_ = true;
    start_ = status;
    changed_.notify_all();
  }
  if (status.ok()) loop_.Run();
  executor_.Finish();
  SayThatOneThreadIsOver();
}

void Runtime::DataThread() {
  executor_.Run();
  SayThatOneThreadIsOver();
}

void Runtime::SayThatOneThreadIsOver() {
  std::lock_guard<std::mutex> lock(mutex_);
  ++threads_over_;
  changed_.notify_all();
}

bool Runtime::WaitReady(Deadline deadline, Status* status) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (!changed_.wait_until(lock, deadline.at(), [&] { return started_; })) return false;
  *status = start_;
  return true;
}

Status Runtime::Enqueue(std::shared_ptr<Request> request, uint64_t* id) {
  Status status = Check(&request->signature);
  if (status.ok()) status = queue_.Add(request, id);
  if (status.code() == Code::kInvalidArgument || status.code() == Code::kUnimplemented) {
    Refuse(request->signature, status.message());
  }
  return status;
}

Status Runtime::Check(Signature* s) const {
  if (!sets_.has(s->process_set)) {
    return Status::InvalidArgument(
        StrCat(s->Title(), ": there is no process set ", s->process_set,
               sets_.knew(s->process_set) ? " any more: it was removed" : " in this generation"));
  }
  const std::vector<int>& members = sets_.members(s->process_set);
  HVD_RETURN_IF_ERROR(Complete(s, static_cast<int>(members.size())));
  HVD_RETURN_IF_ERROR(Validate(*s, members, world_.rank));
  return CheckChange(*s);
}

Status Runtime::CheckChange(const Signature& s) const {
  const bool adds = s.kind == Kind::kAddProcessSet;
  if (!adds && s.kind != Kind::kRemoveProcessSet) return Status::Ok();
  if (!world_.dynamic_process_sets) {
    return Status::InvalidArgument(
        StrCat(s.Title(),
               ": process sets are fixed once init() has run; to change them later set "
               "HOROVOD_DYNAMIC_PROCESS_SETS=1 or call "
               "hvd.init(process_sets='dynamic')"));
  }
  if (!adds && !sets_.has(s.root)) {
    return Status::InvalidArgument(
        StrCat(s.Title(), ": there is no process set ", s.root,
               sets_.knew(s.root) ? " any more: it was removed already" : " in this generation"));
  }
  if (const int same = adds ? sets_.Find(s.ranks) : -1; same >= 0) {
    return Status::InvalidArgument(
        StrCat(s.Title(), ": process set ", same, " holds ", RanksText(s.ranks), " already"));
  }
  return Status::Ok();
}

void Runtime::Refuse(const Signature& signature, const std::string& reason) {
  if (sets_.has(signature.process_set)) queue_.Refuse(signature, reason);
}

void Runtime::Cancel(uint64_t id) { queue_.Cancel(id); }

Status Runtime::Shutdown(int exit_status, Deadline deadline) {
  const std::thread::id self = std::this_thread::get_id();
  if (self == thread_ids_[0] || self == thread_ids_[1]) {
    return Status::FailedPrecondition(
        "shutdown() was called from the completion of a collective; call it from a thread of the "
        "program");
  }
  loop_.Stop(exit_status);
  std::lock_guard<std::mutex> one_at_a_time(shutdown_mutex_);
  if (!control_thread_.joinable()) return Status::Ok();
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!started_) fabric_->Abort(Status::Shutdown("shutdown() was called during init()"));
    const auto over = [&] { return threads_over_ == 2; };
    if (deadline.never()) {
      changed_.wait(lock, over);
    } else if (!changed_.wait_until(lock, deadline.at(), over)) {
      return Status::DeadlineExceeded("still waiting for what was scheduled on all ranks");
    }
  }
  control_thread_.join();
  data_thread_.join();
  LogCounters();
  return Status::Ok();
}

void Runtime::LogCounters() const {
  const Counters& c = counters();
  HVD_LOG(kDebug) << "generation " << world_.generation << " announced " << c.reports_in_full
                  << " tensors in full and " << c.reports_cached << " by their number, was told of "
                  << c.tensors_in_full << " in full and " << c.tensors_cached
                  << " by their number, ran " << c.calls << " collectives and sent "
                  << c.frames_sent << " control messages of " << c.frame_bytes_sent << " bytes";
}

}  // namespace hvd
