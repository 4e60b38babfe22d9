#include "tf_ops/coordinator/executor.h"

#include <algorithm>
#include <utility>

#include "tf_ops/collectives/collective.h"

namespace hvd {

Executor::Executor(const World& world, const Config& config, Fabric* fabric, RequestQueue* queue,
                   Hooks hooks)
    : world_(world), config_(config), fabric_(fabric), queue_(queue), hooks_(std::move(hooks)) {}

void Executor::Post(Response response, std::vector<std::shared_ptr<Request>> requests) {
  auto work = std::make_unique<Work>();
  work->response = std::move(response);
  work->requests = std::move(requests);
  ++in_flight_;
  std::lock_guard<std::mutex> lock(mutex_);
  posted_.push_back(std::move(work));
  changed_.notify_all();
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
    completed_.emplace_back(raw);
    changed_.notify_all();
  };
  if (!raw->response.status.ok()) return done(raw->response.status);

  raw->launched = true;
  CollectiveCall call;
  if (Status status = BuildCall(*raw, &call); !status.ok()) return done(std::move(status));
  Transport& transport = *TransportFor(raw->response.process_set);
  if (transport.IsNative(call.kind)) {
    transport.Launch(call, done);
  } else {
    done(RunGeneric(transport, call));
  }
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
  const std::vector<int>& members = world_.process_sets[first.process_set];
  call->sequence = response.sequence;
  call->kind = first.kind;
  call->dtype = first.dtype;
  call->reduction.op = first.op;
  call->reduction.prescale = first.prescale;
  call->reduction.postscale = first.postscale;
  call->reduction.divisor = first.op == ReduceOp::kAverage ? static_cast<int>(members.size()) : 1;
  call->root = static_cast<int>(std::lower_bound(members.begin(), members.end(), first.root) -
                                members.begin());
  for (size_t i = 0; i < work.requests.size(); ++i) {
    Request& request = *work.requests[i];
    const Signature& mine = request.signature;
    const std::vector<int64_t>& rows = response.rows[i];
    const Collective& collective = *FindCollective(mine.kind);
    if (rows.size() != (collective.uneven_rows ? members.size() : 0)) {
      return Status::Internal(StrCat(mine.Title(), ": ", rows.size(), " ranks' rows came for ",
                                     members.size(), " ranks"));
    }
    const auto output_shape = collective.output_shape;
    if (request.output == nullptr && request.allocate && output_shape != nullptr) {
      const auto shape = output_shape(mine, rows);
      Status status = request.allocate(shape, &request.output);
      if (!status.ok()) {
        return Status(status.code(), StrCat(mine.Title(), ": ", world_.RankText(world_.rank),
                                            " has no memory for the result of shape ",
                                            ShapeText(shape), ": ", status.message()));
      }
    }
    Segment segment{static_cast<const std::byte*>(request.input),
                    static_cast<std::byte*>(request.output), mine.count()};
    if (response.part_count >= 0) {
      const int64_t offset = response.part_begin * static_cast<int64_t>(ItemBytes(mine.dtype));
      segment = {segment.in + offset, segment.out + offset, response.part_count};
    }
    call->segments.push_back(segment);
    for (int64_t n : rows) call->counts.push_back(n * mine.row_count());
  }
  return Status::Ok();
}

Transport* Executor::TransportFor(int process_set) {
  std::unique_ptr<Transport>& transport = transports_[process_set];
  if (transport == nullptr) transport = fabric_->NewTransport(world_.process_sets[process_set]);
  return transport.get();
}

void Executor::Complete(std::unique_ptr<Work> work) {
  const Status& status = work->status;
  if (!work->response.is_last_part()) work->requests.clear();
  for (const auto& request : work->requests) {
    queue_->Finish(request, !work->aborted
                                ? status
                                : Status(status.code(), StrCat(request->signature.Title(), ": ",
                                                               status.message())));
  }
  --in_flight_;
  hooks_.on_progress();
}

}  // namespace hvd
