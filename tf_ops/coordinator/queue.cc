#include "tf_ops/coordinator/queue.h"

#include <algorithm>
#include <utility>

#include "tf_ops/base/log.h"
#include "tf_ops/collectives/collective.h"

namespace hvd {

using What = Announcement::What;

namespace {

constexpr char kCancelled[] = "its caller cancelled it";

}  // namespace

Status RequestQueue::Add(std::shared_ptr<Request> request, uint64_t* id) {
  bool first;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const Signature& s = request->signature;
    if (closed_ != nullptr) {
      const Status& ending = closed_->For(s);
      const Status status(ending.code(), StrCat(s.Title(), ": ", ending.message()));
      SayThatTrainingEnds(status);
      return status;
    }
    if (const auto it = closed_sets_.find(s.process_set); it != closed_sets_.end()) {
      return Status(it->second.code(), StrCat(s.Title(), ": ", it->second.message()));
    }
    if (!in_flight_.emplace(ViewOf(s), request).second) {
      return Status::InvalidArgument(
          StrCat(s.Title(),
                 ": this name is in flight already on this rank; give each "
                 "collective that may run at the same time a name of its own (name=...)"));
    }
    *id = request->id = ++last_id_;
    by_id_[request->id] = request;
    first = outbox_.empty();
    outbox_.push_back({What::kReady, std::move(request), nullptr});
  }
  if (first) wake_();
  return Status::Ok();
}

void RequestQueue::Refuse(const Signature& signature, const std::string& reason) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (closed_ != nullptr || closed_sets_.count(signature.process_set) > 0) return;
    outbox_.push_back(
        {What::kRefused, nullptr,
         std::make_unique<Announcement>(Announcement{What::kRefused, signature, reason})});
  }
  wake_();
}

void RequestQueue::Cancel(uint64_t id) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto it = by_id_.find(id);
    if (it == by_id_.end() || it->second->state == Request::State::kScheduled) return;
    if (std::exchange(it->second->cancelled, true)) return;
    outbox_.push_back({What::kWithdrawn, it->second, nullptr});
  }
  wake_();
}

std::vector<RequestQueue::Outgoing> RequestQueue::TakeLines() {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Outgoing> lines = std::exchange(outbox_, {});
  const auto is_over = [](const Outgoing& line) {
    // One that nobody has heard of ended with its ready line.
    return line.what == What::kWithdrawn && line.request->state != Request::State::kAnnounced;
  };
  for (Outgoing& line : lines) {
    if (line.what != What::kReady) continue;
    if (!line.request->cancelled) {
      line.request->state = Request::State::kAnnounced;
      continue;
    }
    line.what = line.request->signature.gradient ? What::kDropped : What::kRefused;
    in_flight_.erase(ViewOf(line.request->signature));
    by_id_.erase(line.request->id);
  }
  lines.erase(std::remove_if(lines.begin(), lines.end(), is_over), lines.end());
  return lines;
}

std::vector<Report> RequestQueue::TakeReports(int rank, const Cache& cache) {
  std::vector<std::shared_ptr<Request>> cancelled;
  std::vector<Report> out;
  const auto tell = [&](Announcement announcement) {
    out.push_back({Report::What::kAnnouncement, rank, {}, std::move(announcement)});
  };
  for (Outgoing& line : TakeLines()) {
    if (line.request == nullptr) {
      tell(std::move(*line.refusal));
      continue;
    }
    Request& request = *line.request;
    if (line.what == What::kRefused || line.what == What::kDropped) {
      tell({line.what, request.signature, kCancelled});
      cancelled.push_back(std::move(line.request));
      continue;
    }
    if (line.what == What::kReady) request.reported_as = cache.IdFor(request.signature);
    if (line.what != What::kReady || request.reported_as == 0) {
      tell({line.what, request.signature, line.what == What::kWithdrawn ? kCancelled : ""});
      continue;
    }
    if (out.empty() || out.back().what != Report::What::kSubtreeReady) {
      out.push_back({Report::What::kSubtreeReady, rank, {}, {}});
    }
    out.back().ready.push_back({request.reported_as, SizesOf(request.signature)});
  }
  for (const auto& request : cancelled) {
    request->done(Status::Cancelled(StrCat(request->signature.Title(), ": cancelled")));
  }
  return out;
}

void RequestQueue::ReportAgain(int process_set, std::string_view name, CacheId id) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto it = in_flight_.find({process_set, name});
    if (it == in_flight_.end()) return;
    Request& request = *it->second;
    if (request.state != Request::State::kAnnounced || request.reported_as != id) return;
    request.state = Request::State::kQueued;
    outbox_.push_back({What::kReady, it->second, nullptr});
  }
  wake_();
}

std::shared_ptr<Request> RequestQueue::Schedule(int process_set, std::string_view name) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto it = in_flight_.find({process_set, name});
  if (it == in_flight_.end() || it->second->state != Request::State::kAnnounced) return nullptr;
  it->second->state = Request::State::kScheduled;
  return it->second;
}

void RequestQueue::Finish(const std::shared_ptr<Request>& request, const Status& status) {
  {
    // The name is free before `done` runs: the consumer may enqueue it again from there.
    std::lock_guard<std::mutex> lock(mutex_);
    in_flight_.erase(ViewOf(request->signature));
    by_id_.erase(request->id);
  }
  SayThatTrainingEnds(status);
  request->done(status);
}

void RequestQueue::SayThatTrainingEnds(const Status& status) {
  if (status.code() != Code::kOutOfRange || said_that_training_ends_.exchange(true)) return;
  HVD_LOG(kWarning) << "training ends here: " << status.message();
}

void RequestQueue::Close(const Ending& ending) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (closed_ == nullptr) closed_ = std::make_unique<Ending>(ending);
}

void RequestQueue::FailQueued(const Ending& ending) { FailWhere(ending, false); }
void RequestQueue::FailUnscheduled(const Ending& ending) { FailWhere(ending, true); }

void RequestQueue::FailWhere(const Ending& ending, bool announced_too) {
  std::vector<std::shared_ptr<Request>> failed;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    failed = TakeOut([announced_too](const Request& request) {
      return announced_too || request.state == Request::State::kQueued;
    });
    outbox_.clear();
  }
  End(failed, ending);
}

void RequestQueue::CloseSet(int process_set, const Status& why) {
  std::vector<std::shared_ptr<Request>> failed;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    closed_sets_.emplace(process_set, why);
    failed = TakeOut([process_set](const Request& request) {
      return request.signature.process_set == process_set;
    });
    const auto gone = [process_set](const Outgoing& line) {
      return line.signature().process_set == process_set;
    };
    outbox_.erase(std::remove_if(outbox_.begin(), outbox_.end(), gone), outbox_.end());
  }
  End(failed, Ending(why));
}

std::vector<std::shared_ptr<Request>> RequestQueue::TakeOut(
    const std::function<bool(const Request&)>& which) {
  std::vector<std::shared_ptr<Request>> taken;
  for (auto it = in_flight_.begin(); it != in_flight_.end();) {
    const Request& request = *it->second;
    if (request.state == Request::State::kScheduled || !which(request)) {
      ++it;
      continue;
    }
    by_id_.erase(request.id);
    taken.push_back(std::move(it->second));
    it = in_flight_.erase(it);
  }
  std::sort(taken.begin(), taken.end(), [](const auto& a, const auto& b) { return a->id < b->id; });
  return taken;
}

void RequestQueue::End(const std::vector<std::shared_ptr<Request>>& requests,
                       const Ending& ending) {
  for (const auto& request : requests) {
    const Status& status = ending.For(request->signature);
    const Status told(status.code(), StrCat(request->signature.Title(), ": ", status.message()));
    SayThatTrainingEnds(told);
    request->done(told);
  }
}

}  // namespace hvd
