#include "tf_ops/coordinator/control_loop.h"

#include <algorithm>
#include <utility>

#include "tf_ops/base/log.h"

namespace hvd {
namespace {

// Rounds that may be on their way while the next one gathers: one runs, one waits, so the
// data thread never starves and what becomes ready meanwhile travels together.
constexpr int kRoundsInFlight = 2;

// How often waiting tensors are looked at.
constexpr auto kInspection = std::chrono::milliseconds(500);

// A broken data connection is a symptom; the control channel mostly knows the cause
// (a rank that died, an abort elsewhere) within this time.
constexpr auto kCauseTime = std::chrono::milliseconds(500);

// For the last words at an orderly end.
constexpr auto kFarewellTime = std::chrono::seconds(2);

}  // namespace

ControlLoop::ControlLoop(const World& world, const Config& config, Fabric* fabric,
                         RequestQueue* queue, Executor* executor)
    : world_(world),
      config_(config),
      fabric_(fabric),
      control_(fabric->control()),
      queue_(queue),
      executor_(executor),
      negotiator_(world, config),
      gone_(world.size, false),
      remote_(world.size, false),
      heard_(world.size, Clock::now()) {
  for (int r = 0; r < world.size; ++r) {
    if (r == world.rank || (r != 0 && world.rank != 0)) continue;
    peers_.push_back(r);
    remote_[r] = world.hosts[r] != world.hosts[world.rank];
  }
}

void ControlLoop::Run() {
  // Nobody could be heard before, and starting may have taken long.
  std::fill(heard_.begin(), heard_.end(), Clock::now());
  // More events are often there already; taking them all makes one round of them.
  constexpr int kMostEventsPerTurn = 256;
  for (;;) {
    if (ended_ && stopping_) {
      wants_progress_ = true;
      if (executor_->in_flight() == 0) break;
    }
    ControlEvent event = control_.WaitAny(NextTimer());
    for (int i = 0; event.type != ControlEvent::Type::kTimeout; ++i) {
      OnEvent(event);
      if (i == kMostEventsPerTurn) break;
      event = control_.WaitAny(Deadline(Clock::time_point{}));
    }
    SendAnnouncements();
    OnTimer();
    Negotiate();
    if (!stopping_) BeginStop();
  }
  control_.Finish(Deadline::After(kFarewellTime));
}

Deadline ControlLoop::NextTimer() const {
  Deadline next;
  if (reported_ && !aborted_) next = Deadline(report_deadline_);
  if (ended_) return next;
  if (std::find(remote_.begin(), remote_.end(), true) != remote_.end()) {
    next = Earlier(next, Deadline(next_heartbeat_));
  }
  if (is_coordinator() && negotiator_.waiting()) {
    next = Earlier(next, Deadline(next_inspection_));
  }
  if (gathering_since_ && !wants_progress_) {
    next = Earlier(next, Deadline(*gathering_since_ + Seconds(config_.cycle_time_ms / 1e3)));
  }
  return next;
}

void ControlLoop::OnEvent(const ControlEvent& event) {
  if (event.type == ControlEvent::Type::kFrame) {
    heard_[event.peer] = Clock::now();
    OnFrame(event.peer, event.frame);
  } else if (event.type == ControlEvent::Type::kClosed) {
    OnClosed(event.peer, event.text);
  }
}

void ControlLoop::OnFrame(int peer, const std::string& bytes) {
  Frame frame;
  if (!Decode(bytes, &frame)) {
    return Abort(Status::Internal(StrCat(world_.RankText(peer), " sent a frame of ", bytes.size(),
                                         " bytes that cannot be read; do all ranks run the same "
                                         "version?")));
  }
  if (frame.generation != world_.generation) return;
  if (ended_) return OnFrameAfterEnd(peer, frame);
  switch (frame.type) {
    case FrameType::kAnnouncements:
      for (const Announcement& a : frame.announcements) negotiator_.Hear(peer, a, Clock::now());
      break;
    case FrameType::kResponses:
      Deliver(std::move(frame.responses));
      break;
    case FrameType::kGoodbye:
      OnGoodbye(peer);
      break;
    case FrameType::kFarewell:
      ended_ = true;
      break;
    case FrameType::kCoordinatorLeft:
      OnCoordinatorLeft();
      break;
    case FrameType::kAbort:
      Abort(frame.status);
      break;
    case FrameType::kHeartbeat:
      break;
  }
}

// What is scheduled still runs, so a loss still matters; and who leaves in order as well
// must not look lost.
void ControlLoop::OnFrameAfterEnd(int peer, const Frame& frame) {
  if (frame.type == FrameType::kGoodbye || frame.type == FrameType::kCoordinatorLeft) {
    gone_[peer] = true;
  } else if (frame.type == FrameType::kAbort && executor_->in_flight() > 0) {
    Abort(frame.status);
  }
}

void ControlLoop::OnClosed(int peer, const std::string& how) {
  remote_[peer] = false;
  if (gone_[peer] || (ended_ && executor_->in_flight() == 0)) return;
  Abort(Status::PeerLost(StrCat(world_.RankText(peer), " is lost: ", how,
                                "; see the end of that rank's own output, or what its launcher "
                                "says of it, for the cause")));
}

void ControlLoop::OnGoodbye(int peer) {
  gone_[peer] = true;
  // What was decided while it was here still runs, there too.
  FlushStream();
  negotiator_.Leave(peer);
  FlushStream();
  SendFrame(peer, {FrameType::kFarewell, 0, {}, {}, {}});
}

void ControlLoop::OnCoordinatorLeft() {
  gone_[0] = true;
  ended_ = true;
  const std::string text = StrCat(world_.RankText(0),
                                  " ended in order, and nothing can be agreed on without it; give "
                                  "every rank as many steps, or stop them all at the same one");
  const Ending ending(Status::Shutdown(text), Status::OutOfRange(text));
  {
    std::lock_guard<std::mutex> lock(mutex_);
    failure_ = ending.general;
  }
  queue_->Close(ending);
  queue_->FailUnscheduled(ending);
}

void ControlLoop::SendAnnouncements() {
  if (ended_) return;
  std::vector<Announcement> announcements = queue_->TakeAnnouncements();
  if (announcements.empty()) return;
  if (is_coordinator()) {
    for (const Announcement& a : announcements) negotiator_.Hear(0, a, Clock::now());
  } else {
    SendFrame(0, {FrameType::kAnnouncements, 0, std::move(announcements), {}, {}});
  }
}

void ControlLoop::Negotiate() {
  if (!is_coordinator() || ended_ || !negotiator_.has_output()) return;
  const Time now = Clock::now();
  if (!gathering_since_) gathering_since_ = now;
  // Announce the wish first, look second: progress in between is not missed.
  wants_progress_ = true;
  const bool busy = executor_->in_flight() >= kRoundsInFlight;
  if (!busy) wants_progress_ = false;
  const bool gathering = now - *gathering_since_ < Seconds(config_.cycle_time_ms / 1e3);
  if (negotiator_.has_errors() || (!busy && !gathering)) FlushStream();
}

void ControlLoop::FlushStream() {
  gathering_since_.reset();
  wants_progress_ = false;
  std::vector<Frame> frames(world_.size);
  for (Negotiator::Outgoing& out : negotiator_.Flush()) {
    for (int rank : out.recipients) frames[rank].responses.push_back(out.response);
  }
  for (int rank : peers_) {
    if (frames[rank].responses.empty()) continue;
    frames[rank].type = FrameType::kResponses;
    SendFrame(rank, std::move(frames[rank]));
  }
  Deliver(std::move(frames[0].responses));
}

void ControlLoop::Deliver(std::vector<Response> responses) {
  for (Response& response : responses) {
    if (response.sequence <= last_sequence_) {
      return Abort(Status::Internal(
          StrCat("position ", response.sequence, " of the stream came after ", last_sequence_)));
    }
    last_sequence_ = response.sequence;
    std::vector<std::shared_ptr<Request>> requests;
    for (const Signature& s : response.tensors) {
      auto request = queue_->Schedule(s.process_set, s.name);
      if (request != nullptr) requests.push_back(std::move(request));
    }
    if (requests.size() == response.tensors.size()) {
      executor_->Post(std::move(response), std::move(requests));
    } else {
      const Status status =
          Status::Internal(StrCat(response.tensors[0].Title(), ": ", world_.RankText(world_.rank),
                                  " was told of it, but has not announced all of it"));
      for (const auto& request : requests) queue_->Finish(request, status);
      return Abort(status);
    }
  }
}

void ControlLoop::BeginStop() {
  int exit_status;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!stop_status_) return;
    exit_status = *stop_status_;
  }
  stopping_ = true;
  if (ended_) {
    // Rank 0 has left, but may still run what was scheduled: it must not take us for lost.
    if (!aborted_ && !is_coordinator()) SendFrame(0, {FrameType::kGoodbye, 0, {}, {}, {}});
    return;
  }
  if (exit_status != 0) {
    return Abort(
        Status::PeerLost(StrCat(world_.RankText(world_.rank), " ended with exit status ",
                                exit_status, "; see that rank's own output for the cause")));
  }
  const Ending ending(Status::Shutdown("this rank has called shutdown()"));
  queue_->Close(ending);
  queue_->FailQueued(ending);
  if (!is_coordinator()) {
    // Ends with the coordinator's farewell: until then the stream may still need us.
    return SendFrame(0, {FrameType::kGoodbye, 0, {}, {}, {}});
  }
  FlushStream();
  negotiator_.Leave(0);
  FlushStream();
  for (int r : peers_) SendFrame(r, {FrameType::kCoordinatorLeft, 0, {}, {}, {}});
  ended_ = true;
}

void ControlLoop::OnTimer() {
  const Time now = Clock::now();
  LookAtReport(now);
  if (ended_) return;
  if (now >= next_heartbeat_) SendHeartbeats(now);
  if (is_coordinator() && negotiator_.waiting() && now >= next_inspection_) {
    next_inspection_ = now + kInspection;
    std::vector<std::string> warnings;
    const Status status = negotiator_.Inspect(now, &warnings);
    for (const std::string& text : warnings) HVD_LOG(kWarning) << text;
    if (!status.ok()) Abort(status);
  }
}

void ControlLoop::LookAtReport(Time now) {
  if (!reported_) {
    std::lock_guard<std::mutex> lock(mutex_);
    reported_ = report_;
    report_deadline_ = now + kCauseTime;
  }
  if (reported_ && now >= report_deadline_) Abort(*reported_);
}

void ControlLoop::SendHeartbeats(Time now) {
  const Clock::duration silence = Seconds(config_.heartbeat_timeout_s);
  next_heartbeat_ = now + silence / 4;
  for (int r : peers_) {
    if (!remote_[r] || gone_[r]) continue;
    if (now - heard_[r] > silence) {
      return Abort(Status::PeerLost(StrCat(world_.RankText(r), " is lost: silent for more than ",
                                           config_.heartbeat_timeout_s,
                                           " s (HOROVOD_HEARTBEAT_TIMEOUT_SECONDS)")));
    }
    SendFrame(r, {FrameType::kHeartbeat, 0, {}, {}, {}});
  }
}

void ControlLoop::Abort(const Status& reason) {
  if (aborted_) return;
  ended_ = aborted_ = true;
  // Whatever the cause, to every request it is the loss of the job.
  const bool is_loss = reason.code() == Code::kPeerLost || reason.code() == Code::kDeadlineExceeded;
  const Status why = is_loss ? reason : Status::PeerLost(reason.message());
  {
    std::lock_guard<std::mutex> lock(mutex_);
    failure_ = why;
  }
  // A rank that ends by itself has said why already.
  if (!stopping_) {
    HVD_LOG(kError) << "the job is lost: " << why.message();
  }
  for (int r : peers_) SendFrame(r, {FrameType::kAbort, 0, {}, {}, why});
  queue_->Close(Ending(why));
  fabric_->Abort(why);
  executor_->Abort(why);
  queue_->FailUnscheduled(Ending(why));
}

void ControlLoop::SendFrame(int peer, Frame frame) {
  frame.generation = world_.generation;
  control_.Send(peer, Encode(frame));
}

void ControlLoop::Stop(int exit_status) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!stop_status_) stop_status_ = exit_status;
  }
  control_.Wake();
}

void ControlLoop::ReportFailure(const Status& status) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    report_ = status;
  }
  control_.Wake();
}

void ControlLoop::OnProgress() {
  if (wants_progress_.exchange(false)) control_.Wake();
}

Status ControlLoop::failure() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

}  // namespace hvd
