#include "tf_ops/coordinator/executor.h"

#include <algorithm>
#include <utility>

#include "tf_ops/transport/segment_view.h"
#include "tf_ops/transport/subset.h"

namespace hvd {
namespace {

// The reason of an abort, with the tensor that it ends unless it is about that very one.
Status About(const Signature& signature, const Status& why) {
  const std::string title = signature.Title();
  if (why.message().rfind(title, 0) == 0) return why;
  return Status(why.code(), StrCat(title, ": ", why.message()));
}

}  // namespace

Executor::Executor(const World& world, const ProcessSets& sets, const Config& config,
                   Fabric* fabric, RequestQueue* queue, Hooks hooks)
    : world_(world),
      sets_(sets),
      config_(config),
      fabric_(fabric),
      queue_(queue),
      hooks_(std::move(hooks)),
      spinner_(Seconds(config.spin_us / 1e6)) {}

void Executor::Post(Response response, std::vector<std::shared_ptr<Request>> requests) {
  auto work = std::make_unique<Work>();
  work->response = std::move(response);
  work->requests = std::move(requests);
  ++in_flight_;
  std::lock_guard<std::mutex> lock(mutex_);
  posted_.push_back(std::move(work));
  ++offered_;
  changed_.notify_all();
}

std::optional<StreamRunner::Running> Executor::running() const {
  std::lock_guard<std::mutex> lock(mutex_);
  if (running_ == nullptr) return std::nullopt;
  const Response& response = running_->response;
  return Running{response.sequence, response.tensors[0].signature, response.absent,
                 running_->transport->moved()};
}

void Executor::Abort(const Status& why) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (aborted_.ok()) aborted_ = why;
  changed_.notify_all();
}

void Executor::Finish() {
  std::lock_guard<std::mutex> lock(mutex_);
  finishing_ = true;
  changed_.notify_all();
}

void Executor::Run() {
  for (;;) {
    std::unique_ptr<Work> work;
    bool is_complete;
    spinner_.Until([this] { return offered_ > 0; });
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [&] {
        return !completed_.empty() || !posted_.empty() || (finishing_ && in_flight_ == 0);
      });
      is_complete = !completed_.empty();
      auto& from = is_complete ? completed_ : posted_;
      if (from.empty()) return;
      work = std::move(from.front());
      from.pop_front();
      --offered_;
      if (!is_complete && !aborted_.ok()) {
        work->status = aborted_;
        work->aborted = true;
        is_complete = true;
      }
    }
    if (is_complete) {
      if (work->launched && !work->status.ok()) {
        // From here on the peers and this rank are out of step: the job cannot go on.
        hooks_.on_failure(work->status);
        work->status = AwaitAbort();
        work->aborted = true;
      }
      Complete(std::move(work));
    } else {
      Launch(std::move(work));
    }
  }
}

void Executor::Launch(std::unique_ptr<Work> work) {
  Work* const raw = work.release();  // owned by its completion from here on
  const CallDone done = [this, raw](Status status) {
    raw->status = std::move(status);
    std::lock_guard<std::mutex> lock(mutex_);
    if (running_ == raw) running_ = nullptr;
    completed_.emplace_back(raw);
    ++offered_;
    changed_.notify_all();
  };
  if (!raw->response.status.ok()) return done(raw->response.status);

  raw->launched = true;
  CollectiveCall call;
  if (Status status = BuildCall(*raw, &call); !status.ok()) return done(std::move(status));
  raw->transport = TransportFor(raw->response.process_set);
  Transport& whole = *raw->transport;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    running_ = raw;
  }
  if (!raw->response.absent.empty()) {
    SubsetTransport there(&whole, PlacesOfThere(raw->response));
    return done(RunGeneric(there, call));
  }
  // Adasum is no reduction element by element, as which transports know an allreduce.
  const bool native = whole.IsNative(call.kind) && call.reduction.op != ReduceOp::kAdasum;
  if (native) return whole.Launch(call, done);
  done(RunGeneric(whole, call));
}

Status Executor::RunGeneric(Transport& transport, const CollectiveCall& call) {
  const size_t bytes =
      std::max(static_cast<size_t>(config_.staging_bytes), transport.size() * kScratchBytesPerRank);
  const Bytes scratch = staging_.Get(bytes);
  if (scratch.empty()) {
    return Status::Internal(StrCat("no memory for ", bytes, " bytes of staging"));
  }
  return FindCollective(call.kind)->run(transport, call, scratch);
}

Status Executor::AwaitAbort() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return !aborted_.ok(); });
  return aborted_;
}

Status Executor::BuildCall(const Work& work, CollectiveCall* call) {
  const Response& response = work.response;
  const Signature& first = response.first();
  const std::vector<int>& members = sets_.members(first.process_set);
  call->sequence = response.sequence;
  call->kind = first.kind;
  call->dtype = first.sent_as();
  if (first.wire_dtype) call->segment_dtype = first.dtype;
  call->reduction.op = first.op;
  call->reduction.prescale = first.prescale;
  call->reduction.postscale = first.postscale;
  if (first.op == ReduceOp::kAverage) {
    call->reduction.divisor =
        response.divisor != 0 ? response.divisor : static_cast<int>(members.size());
  }
  call->root = first.root;
  if (first.kind == Kind::kBroadcast) {
    call->root = static_cast<int>(std::lower_bound(members.begin(), members.end(), first.root) -
                                  members.begin());
  }
  const auto me = std::lower_bound(members.begin(), members.end(), world_.rank) - members.begin();
  for (size_t r = 0; r < work.requests.size(); ++r) {
    const Around around{static_cast<int>(me), static_cast<int>(members.size()), response.sizes[r]};
    HVD_RETURN_IF_ERROR(AddRequest(work.requests[r].get(), around, call));
  }
  if (response.part_count >= 0) {
    call->segments = Cut(call->segments, response.part_begin, response.part_count,
                         static_cast<int64_t>(ItemBytes(call->in_memory())));
  }
  if (!response.absent.empty()) LeaveOut(response, call);
  return Status::Ok();
}

Status Executor::AddRequest(Request* request, const Around& around, CollectiveCall* call) {
  const Signature& mine = request->signature;
  const Collective& collective = *FindCollective(mine.kind);
  if (around.sizes.size() != around.n * SizeCount(mine, around.n)) {
    return Status::Internal(
        StrCat(mine.Title(), ": ", around.sizes.size(), " sizes came for ", around.n, " ranks"));
  }
  for (size_t i = 0; i < request->buffers.size(); ++i) {
    Request::Buffers& buffers = request->buffers[i];
    if (buffers.output == nullptr && request->allocate && collective.output_shape != nullptr) {
      const auto shape = collective.output_shape(mine, i, around);
      Status status = request->allocate(i, shape, &buffers.output);
      if (!status.ok()) {
        return Status(status.code(), StrCat(mine.Title(), ": ", world_.RankText(world_.rank),
                                            " has no memory for the result of shape ",
                                            ShapeText(shape), ": ", status.message()));
      }
    }
    call->segments.push_back({static_cast<const std::byte*>(buffers.input),
                              static_cast<std::byte*>(buffers.output), mine.count(i)});
    if (collective.divide != nullptr) collective.divide(mine, i, around, call);
  }
  if (request->received_splits != nullptr) {
    for (int r = 0; r < around.n; ++r) {
      request->received_splits[r] = static_cast<int32_t>(around.sizes[r * around.n + around.me]);
    }
  }
  return Status::Ok();
}

std::vector<int> Executor::PlacesOfThere(const Response& response) const {
  const std::vector<int>& members = sets_.members(response.process_set);
  std::vector<int> places;
  for (size_t m = 0; m < members.size(); ++m) {
    if (!std::binary_search(response.absent.begin(), response.absent.end(), members[m])) {
      places.push_back(static_cast<int>(m));
    }
  }
  return places;
}

void Executor::LeaveOut(const Response& response, CollectiveCall* call) const {
  const std::vector<int> there = PlacesOfThere(response);
  const auto keep = [&there](std::vector<std::vector<Part>>* lists) {
    for (std::vector<Part>& parts : *lists) {
      std::vector<Part> kept;
      for (int place : there) kept.push_back(parts[place]);
      parts = std::move(kept);
    }
  };
  keep(&call->to);
  keep(&call->from);
  call->root =
      static_cast<int>(std::lower_bound(there.begin(), there.end(), call->root) - there.begin());
}

std::shared_ptr<Transport> Executor::TransportFor(int process_set) {
  std::shared_ptr<Transport>& transport = transports_[process_set];
  if (transport == nullptr) transport = fabric_->NewTransport(sets_.members(process_set));
  return transport;
}

void Executor::Complete(std::unique_ptr<Work> work) {
  const Status& status = work->status;
  const Response& response = work->response;
  if (status.ok() && response.first().kind == Kind::kRemoveProcessSet) {
    transports_.erase(response.first().root);
  }
  if (!response.is_last_part()) work->requests.clear();
  for (const auto& request : work->requests) {
    queue_->Finish(request, work->aborted ? About(request->signature, status) : status);
  }
  --in_flight_;
  hooks_.on_progress();
}

}  // namespace hvd
