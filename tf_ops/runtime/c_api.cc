#include "tf_ops/runtime/c_api.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "tf_ops/base/config.h"
#include "tf_ops/base/fd.h"
#include "tf_ops/base/log.h"
#include "tf_ops/collectives/collective.h"
#include "tf_ops/runtime/runtime.h"
#include "tf_ops/transport/registry.h"

namespace {

using hvd::Code;
using hvd::Deadline;
using hvd::Runtime;
using hvd::Status;
using hvd::StrCat;

static_assert(static_cast<int>(Code::kNotInitialized) == HVD_NOT_INITIALIZED);
static_assert(static_cast<int>(hvd::Kind::kRemoveProcessSet) == HVD_REMOVE_PROCESS_SET);
static_assert(static_cast<int>(hvd::DType::kFloat64) == HVD_FLOAT64);
static_assert(static_cast<int>(hvd::ReduceOp::kProduct) == HVD_PRODUCT);

// The one global of the core: what this process has of us.  Never destroyed, since
// threads of the program may still call while the process exits.
struct Process {
  std::mutex mutex;
  hvd::FdTable fds;
  hvd::Listeners listeners;          // opened by hvd_listen, for the next hvd_start
  std::shared_ptr<Runtime> runtime;  // guarded by mutex
  bool ready = false;                // hvd_wait_ready has succeeded; guarded by mutex
  std::atomic<pid_t> pid{0};         // that called hvd_start and not yet hvd_shutdown, or 0
};

Process& process() {
  static Process& instance = *new Process;
  return instance;
}

thread_local std::string last_error;
thread_local std::string next_name;
thread_local bool next_name_taken = true;

int Return(const Status& status) {
  last_error = status.message();
  return static_cast<int>(status.code());
}

Status NotInitialized() {
  return Status(Code::kNotInitialized, "not initialized: call hvd.init() first");
}

// A child of a rank has its memory, but neither its threads nor its sockets.
bool InForkedChild() {
  const pid_t pid = process().pid;
  return pid != 0 && pid != getpid();
}

Status ForkedChild() {
  return Status(Code::kNotInitialized,
                "this process was forked from a rank and is none itself; start ranks with "
                "horovodrun, and workers with the 'spawn' method if they call hvd");
}

// The runtime, once all ranks are there.
std::shared_ptr<Runtime> Ready() {
  if (InForkedChild()) return nullptr;
  std::lock_guard<std::mutex> lock(process().mutex);
  return process().ready ? process().runtime : nullptr;
}

template <typename Get>
int FromWorld(Get get) {
  const auto runtime = Ready();
  return runtime == nullptr ? -1 : get(runtime->world());
}

// REQUIRES: process().mutex is held.
void Forget() {
  process().runtime.reset();
  process().pid = 0;
}

Status Shutdown(int exit_status, Deadline deadline) {
  if (InForkedChild()) return Status::Ok();
  std::shared_ptr<Runtime> runtime;
  bool ready;
  {
    std::lock_guard<std::mutex> lock(process().mutex);
    runtime = process().runtime;
    ready = std::exchange(process().ready, false);
    if (runtime == nullptr) process().listeners = {};  // nobody will call any more
  }
  if (runtime == nullptr) return Status::Ok();
  const Status status = runtime->Shutdown(exit_status, deadline);
  if (status.code() == Code::kDeadlineExceeded) return status;
  if (!status.ok()) {  // refused: nothing has changed
    std::lock_guard<std::mutex> lock(process().mutex);
    if (process().runtime == runtime) process().ready = ready;
    return status;
  }
  std::lock_guard<std::mutex> lock(process().mutex);
  if (process().runtime == runtime) Forget();
  return Status::Ok();
}

// A process that ends says goodbye with its exit status: on_exit sees it, atexit does not.
// The thread-local `last_error` is destroyed by then, so no function of the C API is called.
void AtExit(int exit_status, void*) { (void)Shutdown(exit_status, Deadline::Never()); }

void InstallHandlersOnce() {
  static const bool installed = [] {
    on_exit(AtExit, nullptr);
    // The child must find no lock held by a thread that it does not have.
    pthread_atfork(
        [] {
          process().mutex.lock();
          process().fds.LockForFork();
        },
        [] {
          process().fds.UnlockAfterFork();
          process().mutex.unlock();
        },
        [] {
          process().fds.CloseAllInChild();
          process().listeners.Release();
          process().fds.UnlockAfterFork();
          process().mutex.unlock();
        });
    return true;
  }();
  (void)installed;
}

hvd::World WorldFrom(const hvd_world& w) {
  hvd::World world;
  world.rank = w.rank;
  world.size = w.size;
  world.local_rank = w.local_rank;
  world.local_size = w.local_size;
  world.cross_rank = w.cross_rank;
  world.cross_size = w.cross_size;
  world.homogeneous = w.homogeneous != 0;
  world.generation = w.generation;
  world.nonce = w.nonce;
  world.secret.assign(reinterpret_cast<const char*>(w.secret), w.secret_size);
  std::vector<int> all;
  for (int r = 0; r < w.size; ++r) {
    all.push_back(r);
    world.hosts.push_back(w.hosts[r]);
    std::vector<std::string>& endpoints = world.endpoints.emplace_back();
    std::stringstream list(w.endpoints[r]);
    for (std::string item; std::getline(list, item, ',');) endpoints.push_back(item);
  }
  world.dynamic_process_sets = w.dynamic_process_sets != 0;
  world.process_sets.push_back(std::move(all));
  world.process_sets.resize(std::max(w.first_set_id, 1));
  const int32_t* ranks = w.set_ranks;
  for (int i = 0; i < w.num_process_sets; ++i) {
    world.process_sets.emplace_back(ranks, ranks + w.set_sizes[i]);
    ranks += w.set_sizes[i];
  }
  return world;
}

Status ReadKnobs(bool warn, hvd::Config* config, hvd::LogLevel* level) {
  HVD_RETURN_IF_ERROR(hvd::ReadConfigFromEnvironment(warn, config));
  HVD_RETURN_IF_ERROR(hvd::CheckTransport(config->transport));
  if (config->join_average != hvd::kJoinAverageOfAll &&
      config->join_average != hvd::kJoinAverageOfPresent) {
    return Status::InvalidArgument(StrCat("HOROVOD_JOIN_AVERAGE is '", config->join_average,
                                          "'; use ", hvd::kJoinAverageOfAll, " or ",
                                          hvd::kJoinAverageOfPresent));
  }
  return hvd::ParseLogLevel(config->log_level, level);
}

Status Start(const hvd_world& w) {
  if (w.size < 1 || w.rank < 0 || w.rank >= w.size) {
    return Status::InvalidArgument(StrCat("rank ", w.rank, " of ", w.size, " does not exist"));
  }
  std::lock_guard<std::mutex> lock(process().mutex);
  if (process().runtime != nullptr) {
    return Status::FailedPrecondition("already started: call shutdown() first");
  }
  hvd::Config config;
  hvd::LogLevel level;
  hvd::SetLogging(hvd::LogLevel::kWarning, config.log_timestamp, w.rank);
  HVD_RETURN_IF_ERROR(ReadKnobs(/*warn=*/true, &config, &level));
  hvd::SetLogging(level, config.log_timestamp, w.rank);
  config.start_timeout_s = w.start_timeout_s;

  hvd::World world = WorldFrom(w);
  world.dynamic_process_sets = world.dynamic_process_sets || config.dynamic_process_sets;
  std::unique_ptr<hvd::Fabric> fabric;
  const hvd::FabricOptions options = {config.transport, static_cast<size_t>(config.staging_bytes),
                                      hvd::Seconds(config.spin_us / 1e6)};
  HVD_RETURN_IF_ERROR(
      hvd::NewFabric(options, world, std::move(process().listeners), &process().fds, &fabric));
  auto runtime = std::make_shared<Runtime>(std::move(world), std::move(config), std::move(fabric));
  runtime->Start();
  process().runtime = std::move(runtime);
  process().pid = getpid();
  return Status::Ok();
}

// What ranks match a request by; REQUIRES: a known kind.
hvd::Signature IdentityOf(const hvd_request& r) {
  hvd::Signature s;
  s.name = r.name;
  s.process_set = r.process_set;
  s.kind = static_cast<hvd::Kind>(r.kind);
  s.grouped = r.grouped != 0;
  s.others = r.num_others;
  if (const char* name = hvd::FindCollective(s.kind)->fixed_name) s.name = name;
  return s;
}

bool KnownKind(const hvd_request& r) { return r.kind >= 0 && r.kind < hvd::kNumKinds; }

Status CheckNumbers(const char* name, int32_t kind, int32_t dtype, int32_t reduce_op) {
  if (kind >= 0 && kind < hvd::kNumKinds && dtype >= 0 && dtype < hvd::kNumDTypes &&
      reduce_op >= 0 && reduce_op < hvd::kNumReduceOps) {
    return Status::Ok();
  }
  return Status::InvalidArgument(StrCat("'", name, "': kind ", kind, ", dtype ", dtype,
                                        " or reduction ", reduce_op, " is not known"));
}

// The smallest request of its kind, of a job of one rank.
hvd::Signature Example(hvd::Kind kind, hvd::DType dtype, hvd::ReduceOp op, bool grouped) {
  hvd::Signature s;
  const char* const fixed = hvd::FindCollective(kind)->fixed_name;
  s.name = fixed != nullptr ? fixed : "x";
  s.kind = kind;
  s.root = kind == hvd::Kind::kRemoveProcessSet ? 1 : 0;
  if (kind == hvd::Kind::kAddProcessSet) s.ranks = {0};
  s.dtype = dtype;
  s.op = op;
  s.grouped = grouped;
  if (kind != hvd::Kind::kBarrier) s.shapes = {{1}};
  if (fixed != nullptr) s.shapes = {{}};
  return s;
}

Status RequestFrom(const hvd_request& r, hvd::Request* request) {
  HVD_RETURN_IF_ERROR(CheckNumbers(r.name, r.kind, r.dtype, r.reduce_op));
  HVD_RETURN_IF_ERROR(CheckNumbers(r.name, r.kind, r.wire_dtype, r.reduce_op));
  hvd::Signature& s = request->signature;
  s = IdentityOf(r);
  s.dtype = static_cast<hvd::DType>(r.dtype);
  if (r.wire_dtype != 0) s.wire_dtype = static_cast<hvd::DType>(r.wire_dtype);
  s.op = static_cast<hvd::ReduceOp>(r.reduce_op);
  s.prescale = r.prescale;
  s.postscale = r.postscale;
  s.root = r.root;
  s.gradient = r.gradient != 0;
  s.shapes.reserve(r.num_tensors);
  request->buffers.reserve(r.num_tensors);
  s.splits.assign(r.splits, r.splits + r.num_splits);
  s.ranks.assign(r.ranks, r.ranks + r.num_ranks);
  for (int32_t i = 0; i < r.num_tensors; ++i) {
    const hvd_tensor& tensor = r.tensors[i];
    s.shapes.emplace_back(tensor.shape, tensor.shape + tensor.ndim);
    request->buffers.push_back({tensor.input, tensor.output});
    if (tensor.output == nullptr && r.allocate == nullptr && s.count(i) != 0) {
      return Status::InvalidArgument(StrCat(s.Title(), ": neither output nor allocate is given"));
    }
  }
  request->received_splits = r.received_splits;
  if (r.allocate != nullptr) {
    request->allocate = [allocate = r.allocate, context = r.context](
                            size_t i, const std::vector<int64_t>& shape, void** output) -> Status {
      const int code = allocate(context, static_cast<int32_t>(i), shape.data(),
                                static_cast<int32_t>(shape.size()), output);
      return code == HVD_OK ? Status::Ok()
                            : Status(static_cast<Code>(code), "the framework gave no memory");
    };
  }
  request->done = [done = r.done, context = r.context](const Status& status) {
    done(context, static_cast<int>(status.code()), status.message().c_str());
  };
  return Status::Ok();
}

void CopyText(const std::string& text, char* out, size_t size) {
  if (size == 0) return;
  const size_t n = std::min(text.size(), size - 1);
  std::memcpy(out, text.data(), n);
  out[n] = '\0';
}

}  // namespace

const char* hvd_last_error(void) { return last_error.c_str(); }

int hvd_listen(int loopback_only, char* endpoints, size_t size) {
  if (InForkedChild()) return Return(ForkedChild());
  InstallHandlersOnce();
  std::lock_guard<std::mutex> lock(process().mutex);
  std::vector<std::string> list;
  Status status =
      hvd::OpenListener(loopback_only != 0, &process().fds, &process().listeners, &list);
  std::string text;
  for (const std::string& item : list) text += (text.empty() ? "" : ",") + item;
  if (status.ok() && text.size() >= size) {
    status = Status::Internal(StrCat("the list of addresses has ", text.size(), " bytes"));
  }
  if (status.ok()) CopyText(text, endpoints, size);
  return Return(status);
}

int hvd_check_config(void) {
  hvd::Config config;
  hvd::LogLevel level;
  return Return(ReadKnobs(/*warn=*/false, &config, &level));
}

int hvd_start(const hvd_world* world) {
  if (InForkedChild()) return Return(ForkedChild());
  InstallHandlersOnce();
  try {
    return Return(Start(*world));
  } catch (const std::exception& error) {  // no thread or no memory is left
    return Return(Status::Internal(StrCat("cannot start: ", error.what())));
  }
}

int hvd_wait_ready(double seconds) {
  if (InForkedChild()) return Return(ForkedChild());
  std::shared_ptr<Runtime> runtime;
  {
    std::lock_guard<std::mutex> lock(process().mutex);
    runtime = process().runtime;
  }
  if (runtime == nullptr) return Return(NotInitialized());
  Status status;
  const bool over = runtime->WaitReady(Deadline::After(hvd::Seconds(seconds)), &status);
  if (!over) return Return(Status::DeadlineExceeded("still waiting for the other ranks"));
  std::lock_guard<std::mutex> lock(process().mutex);
  if (process().runtime != runtime) {
    return Return(Status::Shutdown("shutdown() was called during init()"));
  }
  process().ready = status.ok();
  if (!status.ok()) Forget();
  // The caller tells this apart from "not yet".
  if (status.code() == Code::kDeadlineExceeded) status = Status::PeerLost(status.message());
  return Return(status);
}

int hvd_shutdown(int exit_status, double seconds) {
  return Return(Shutdown(exit_status, Deadline::After(hvd::Seconds(seconds))));
}

int hvd_is_initialized(void) { return Ready() != nullptr ? 1 : 0; }

int hvd_failure(char* text, size_t size) {
  const auto runtime = Ready();
  const Status status = runtime == nullptr ? NotInitialized() : runtime->failure();
  CopyText(status.message(), text, size);
  return Return(status);
}

uint64_t hvd_count(hvd_counter counter) {
  const auto runtime = Ready();
  if (runtime == nullptr) return 0;
  const hvd::Counters& counters = runtime->counters();
  switch (counter) {
    case HVD_FRAMES_SENT:
      return counters.frames_sent;
    case HVD_FRAME_BYTES_SENT:
      return counters.frame_bytes_sent;
    case HVD_REPORTS_IN_FULL:
      return counters.reports_in_full;
    case HVD_REPORTS_CACHED:
      return counters.reports_cached;
    case HVD_TENSORS_IN_FULL:
      return counters.tensors_in_full;
    case HVD_TENSORS_CACHED:
      return counters.tensors_cached;
    case HVD_CALLS:
      return counters.calls;
    case HVD_FRAMES_RECEIVED:
      return counters.frames_received;
  }
  return 0;
}

int hvd_rank(void) {
  return FromWorld([](const hvd::World& w) { return w.rank; });
}
int hvd_size(void) {
  return FromWorld([](const hvd::World& w) { return w.size; });
}
int hvd_local_rank(void) {
  return FromWorld([](const hvd::World& w) { return w.local_rank; });
}
int hvd_local_size(void) {
  return FromWorld([](const hvd::World& w) { return w.local_size; });
}
int hvd_cross_rank(void) {
  return FromWorld([](const hvd::World& w) { return w.cross_rank; });
}
int hvd_cross_size(void) {
  return FromWorld([](const hvd::World& w) { return w.cross_size; });
}
int hvd_is_homogeneous(void) {
  return FromWorld([](const hvd::World& w) { return w.homogeneous ? 1 : 0; });
}

int hvd_process_set_size(int set) {
  const auto runtime = Ready();
  if (runtime == nullptr || !runtime->process_sets().has(set)) return -1;
  return static_cast<int>(runtime->process_sets().members(set).size());
}
int hvd_process_set_rank(int set) {
  const auto runtime = Ready();
  if (runtime == nullptr || !runtime->process_sets().has(set)) return -1;
  const std::vector<int>& members = runtime->process_sets().members(set);
  const auto it = std::lower_bound(members.begin(), members.end(), runtime->world().rank);
  const bool in = it != members.end() && *it == runtime->world().rank;
  return in ? static_cast<int>(it - members.begin()) : -1;
}

int hvd_supports(int32_t kind, int32_t dtype, int32_t reduce_op, int32_t grouped) {
  Status status = CheckNumbers("hvd_supports", kind, dtype, reduce_op);
  if (!status.ok()) return Return(status);
  hvd::Signature s = Example(static_cast<hvd::Kind>(kind), static_cast<hvd::DType>(dtype),
                             static_cast<hvd::ReduceOp>(reduce_op), grouped != 0);
  status = hvd::Complete(&s, 1);
  return Return(status.ok() ? hvd::Validate(s, {0}, 0) : status);
}

void hvd_name_next(const char* name) {
  next_name = name == nullptr ? "" : name;
  next_name_taken = false;
}

const char* hvd_take_next_name(void) {
  return std::exchange(next_name_taken, true) ? "" : next_name.c_str();
}

int hvd_enqueue(const hvd_request* r, uint64_t* id) {
  if (InForkedChild()) return Return(ForkedChild());
  const auto runtime = Ready();
  if (runtime == nullptr) return Return(NotInitialized());
  try {
    auto request = std::make_shared<hvd::Request>();
    const Status status = RequestFrom(*r, request.get());
    if (status.ok()) return Return(runtime->Enqueue(std::move(request), id));
    if (KnownKind(*r)) runtime->Refuse(IdentityOf(*r), status.message());
    return Return(status);
  } catch (const std::exception& error) {  // no memory is left
    return Return(Status::Internal(StrCat("'", r->name, "': ", error.what())));
  }
}

void hvd_refuse(const hvd_request* r, const char* reason) {
  const auto runtime = KnownKind(*r) ? Ready() : nullptr;
  if (runtime != nullptr) runtime->Refuse(IdentityOf(*r), reason);
}

void hvd_cancel(uint64_t id) {
  if (const auto runtime = Ready()) runtime->Cancel(id);
}
