#include "tf_ops/coordinator/queue.h"

#include "tf_ops/base/log.h"

namespace hvd {

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
    if (!in_flight_.emplace(KeyOf(s), request).second) {
      return Status::InvalidArgument(
          StrCat(s.Title(),
                 ": this name is in flight already on this rank; give each "
                 "collective that may run at the same time a name of its own (name=...)"));
    }
    *id = request->id = ++last_id_;
    by_id_[request->id] = request;
    first = outbox_.empty();
    outbox_.push_back({{Announcement::What::kReady, s, {}}, std::move(request)});
  }
  if (first) wake_();
  return Status::Ok();
}

void RequestQueue::Refuse(const Signature& signature, const std::string& reason) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (closed_ != nullptr) return;
    outbox_.push_back({{Announcement::What::kRefused, signature, reason}, nullptr});
  }
  wake_();
}

void RequestQueue::Cancel(uint64_t id) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto it = by_id_.find(id);
    if (it == by_id_.end() || it->second->state == Request::State::kScheduled) return;
    outbox_.push_back(
        {{Announcement::What::kWithdrawn, it->second->signature, "its caller cancelled it"},
         it->second});
  }
  wake_();
}

std::vector<Announcement> RequestQueue::TakeAnnouncements() {
  std::vector<std::shared_ptr<Request>> cancelled;
  std::vector<Announcement> out;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    // A request cancelled before anybody heard of it ends here, and is told as a refusal.
    std::map<uint64_t, bool> withdrawn;
    for (const Outgoing& line : outbox_) {
      if (line.announcement.what == Announcement::What::kWithdrawn &&
          line.request->state == Request::State::kQueued) {
        withdrawn[line.request->id] = true;
      }
    }
    for (Outgoing& line : outbox_) {
      const bool ends_here = line.request != nullptr && withdrawn.count(line.request->id) > 0;
      if (line.announcement.what == Announcement::What::kReady) {
        if (ends_here) {
          line.announcement.what = Announcement::What::kRefused;
          line.announcement.reason = "its caller cancelled it";
          in_flight_.erase(KeyOf(line.request->signature));
          by_id_.erase(line.request->id);
          cancelled.push_back(line.request);
        } else {
          line.request->state = Request::State::kAnnounced;
        }
      } else if (ends_here) {
        continue;  // the refusal says it
      }
      out.push_back(std::move(line.announcement));
    }
    outbox_.clear();
  }
  for (const auto& request : cancelled) {
    request->done(Status::Cancelled(StrCat(request->signature.Title(), ": cancelled")));
  }
  return out;
}

std::shared_ptr<Request> RequestQueue::Schedule(int process_set, const std::string& name) {
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
    in_flight_.erase(KeyOf(request->signature));
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
    for (auto it = in_flight_.begin(); it != in_flight_.end();) {
      const Request& request = *it->second;
      if (request.state == Request::State::kQueued ||
          (announced_too && request.state == Request::State::kAnnounced)) {
        by_id_.erase(request.id);
        failed.push_back(std::move(it->second));
        it = in_flight_.erase(it);
      } else {
        ++it;
      }
    }
    outbox_.clear();
  }
  for (const auto& request : failed) {
    const Status& status = ending.For(request->signature);
    const Status told(status.code(), StrCat(request->signature.Title(), ": ", status.message()));
    SayThatTrainingEnds(told);
    request->done(told);
  }
}

}  // namespace hvd
