#include "tf_ops/coordinator/control_loop.h"

#include <algorithm>
#include <iterator>
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

ControlLoop::ControlLoop(const World& world, ProcessSets* sets, const Config& config,
                         Fabric* fabric, RequestQueue* queue, StreamRunner* runner)
    : world_(world),
      sets_(sets),
      config_(config),
      fabric_(fabric),
      control_(fabric->control()),
      queue_(queue),
      runner_(runner),
      topology_(world.hosts),
      peers_(topology_.neighbors(world.rank)),
      run_watch_(world_, *sets, config),
      spinner_(Seconds(config.spin_us / 1e6)),
      ports_(world, *sets, topology_),
      check_(world, *sets, topology_, ports_, cache_),
      relay_(world, *sets, ports_, cache_),
      negotiator_(world, *sets, config, ports_),
      liveness_(Seconds(config.heartbeat_timeout_s)),
      let_go_(world.size, false),
      over_(world.size, false) {}

void ControlLoop::Run() {
  // More events are often there already; taking them all makes one round of them.
  constexpr size_t kMostEventsPerTurn = 256;
  Begin(Clock::now());
  std::vector<ControlEvent> events;
  while (Turn(events, Clock::now())) {
    events.clear();
    ControlEvent event = NextEvent();
    while (event.type != ControlEvent::Type::kTimeout) {
      events.push_back(std::move(event));
      if (events.size() == kMostEventsPerTurn) break;
      event = control_.WaitAny(Deadline(Clock::time_point{}));
    }
  }
  control_.Finish(Deadline::After(kFarewellTime));
}

ControlEvent ControlLoop::NextEvent() {
  ControlEvent event;
  const bool came = spinner_.Until([&] {
    event = control_.WaitAny(Deadline(Clock::time_point{}));
    return event.type != ControlEvent::Type::kTimeout;
  });
  return came ? event : control_.WaitAny(NextTimer());
}

void ControlLoop::Begin(Time now) {
  now_ = now;
  for (int peer : peers_) {
    if (!control_.Watches(peer)) liveness_.Begin(peer, now);
  }
}

bool ControlLoop::Turn(const std::vector<ControlEvent>& events, Time now) {
  now_ = now;
  for (const ControlEvent& event : events) OnEvent(event);
  SendReports();
  OnTimer();
  Negotiate();
  HeedStop();
  return !MayGo();
}

// Announces the wish first and looks second: progress in between is not missed.
bool ControlLoop::RunnerHas(int responses) {
  wants_progress_ = true;
  if (runner_->in_flight() >= responses) return true;
  wants_progress_ = false;
  return false;
}

Deadline ControlLoop::NextTimer() const {
  Deadline next;
  if (reported_ && !aborted_) next = Deadline(report_deadline_);
  if (const auto due = liveness_.next_time(); due) next = Earlier(next, Deadline(*due));
  if (Inspects() || WatchesRunner()) next = Earlier(next, Deadline(next_inspection_));
  if (ended_) return next;
  if (const auto held = relay_.next_time(); held) next = Earlier(next, Deadline(*held));
  if (gathering_since_ && !wants_progress_) {
    next = Earlier(next, Deadline(*gathering_since_ + Seconds(config_.cycle_time_ms / 1e3)));
  }
  return next;
}

void ControlLoop::OnEvent(const ControlEvent& event) {
  if (event.type == ControlEvent::Type::kFrame) {
    liveness_.Heard(event.peer, now_);
    OnFrame(event.peer, event.frame);
  } else if (event.type == ControlEvent::Type::kClosed) {
    OnClosed(event.peer, event.text);
  }
}

void ControlLoop::OnFrame(int peer, const std::string& bytes) {
  ++counters_.frames_received;
  Frame frame;
  if (!Decode(bytes, &frame)) {
    return Abort(Status::Internal(StrCat(world_.RankText(peer), " sent a frame of ", bytes.size(),
                                         " bytes that cannot be read; do all ranks run the same "
                                         "version?")));
  }
  if (frame.generation != world_.generation) return;
  if (Status status = check_.Check(peer, frame); !status.ok()) return Abort(status);
  switch (frame.type) {
    case FrameType::kAbort:
      return Abort(frame.status);
    case FrameType::kHeartbeat:
      return SendFrame(peer, {FrameType::kAlive, 0, {}, {}, 0, {}});
    case FrameType::kAlive:
      return;
    case FrameType::kOver:
      if (!ended_ && !let_go_[peer]) {
        return Abort(check_.Bad(peer, "word that it has ended, though nobody let it go"));
      }
      over_[peer] = true;
      return liveness_.End(peer);
    default:
      // What is scheduled still runs, but nothing is negotiated any more.
      if (!ended_) OnNegotiation(peer, std::move(frame));
  }
}

void ControlLoop::OnNegotiation(int peer, Frame frame) {
  switch (frame.type) {
    case FrameType::kReports:
      if (is_coordinator()) {
        for (const Report& r : frame.reports) negotiator_.Hear(peer, r, now_);
      } else {
        relay_.Hear(peer, std::move(frame.reports), now_);
      }
      break;
    case FrameType::kResponses:
      Follow(std::move(frame.responses));
      break;
    case FrameType::kGoodbye:
      OnGoodbye(frame.rank);
      break;
    case FrameType::kFarewell:
      OnFarewell(frame.rank);
      break;
    case FrameType::kCutOff:
      OnCutOff(frame.rank);
      break;
    default:
      break;
  }
}

void ControlLoop::SendReports() {
  if (ended_) return;
  std::vector<Report> reports = queue_->TakeReports(world_.rank, cache_);
  for (const Report& r : reports) {
    counters_.reports_cached += r.ready.size();
    if (r.what == Report::What::kAnnouncement) ++counters_.reports_in_full;
  }
  if (is_coordinator()) {
    for (const Report& r : reports) negotiator_.Hear(0, r, now_);
    return;
  }
  relay_.Hear(world_.rank, std::move(reports), now_);
  std::vector<Report> up = relay_.Take(now_);
  if (!up.empty()) SendFrame(parent(), {FrameType::kReports, 0, std::move(up), {}, 0, {}});
}

void ControlLoop::Negotiate() {
  // A round may leave parts of large tensors for the next one.  Of sets without rank 0 nothing
  // tells here how far they are, so their parts follow each other at once.
  while (is_coordinator() && !ended_ && negotiator_.has_output()) {
    if (!gathering_since_) gathering_since_ = now_;
    const bool busy = RunnerHas(kRoundsInFlight);
    const bool gathering = now_ - *gathering_since_ < Seconds(config_.cycle_time_ms / 1e3);
    if (!negotiator_.has_errors() && (busy || gathering)) return;
    FlushStream(/*all=*/false);
  }
}

void ControlLoop::FlushStream(bool all) {
  gathering_since_.reset();
  wants_progress_ = false;
  Follow(all ? negotiator_.FlushAll() : negotiator_.Flush());
}

void ControlLoop::Follow(std::vector<Response> responses) {
  std::vector<std::vector<std::shared_ptr<const Signature>>> evicted(responses.size());
  for (size_t i = 0; i < responses.size(); ++i) {
    for (CacheId id : responses[i].evicted) evicted[i].push_back(cache_.Find(id));
    if (Status status = Admit(&responses[i]); !status.ok()) return Abort(status);
  }
  Forward(responses);
  for (size_t i = 0; i < responses.size(); ++i) {
    Response& response = responses[i];
    if (Status status = ChangeSets(response); !status.ok()) return Abort(status);
    relay_.Pass(response);
    const std::vector<CacheId> ids = response.evicted;
    // What it runs itself is scheduled first: a tensor may replace its own entry.
    if (!response.tensors.empty() && relay_.IsFor(response, 0)) Deliver(std::move(response));
    if (aborted_) return;
    for (size_t e = 0; e < ids.size(); ++e) {
      const auto& signature = evicted[i][e];
      if (signature == nullptr) continue;
      queue_->ReportAgain(signature->process_set, signature->name, ids[e]);
    }
  }
}

Status ControlLoop::Admit(Response* response) {
  const auto bad = [&](const std::string& why) {
    return check_.Bad(source(), StrCat("position ", response->sequence, " of the stream, ", why));
  };
  if (response->sequence <= last_sequence_) return bad(StrCat("after position ", last_sequence_));
  last_sequence_ = response->sequence;
  if (!cache_.Apply(response)) return bad("which does not fit what is in the cache");
  return check_.CheckResponse(source(), *response);
}

Status ControlLoop::ChangeSets(const Response& response) {
  if (response.tensors.empty() || !response.status.ok()) return Status::Ok();
  const Signature& s = response.first();
  const auto bad = [&](const std::string& what) {
    return check_.Bad(source(),
                      StrCat("position ", response.sequence, " of the stream, which ", what));
  };
  if (s.kind == Kind::kAddProcessSet) {
    if (s.root != sets_->size()) {
      return bad(StrCat("adds process set ", s.root, " to ", sets_->size()));
    }
    sets_->Add(s.ranks);
    ports_.AddSet(s.ranks);
    negotiator_.AddSet();
  } else if (s.kind == Kind::kRemoveProcessSet) {
    if (!sets_->has(s.root)) return bad(StrCat("removes process set ", s.root, ", which is none"));
    sets_->Remove(s.root);
    queue_->CloseSet(s.root, Status::FailedPrecondition(StrCat("process set ", s.root,
                                                               " was removed meanwhile; remove it "
                                                               "when nothing runs on it")));
  }
  return Status::Ok();
}

void ControlLoop::Forward(const std::vector<Response>& responses) {
  const auto encoded = [this](std::vector<Response> some) {
    return Encode({FrameType::kResponses, world_.generation, {}, std::move(some), 0, {}});
  };
  std::string for_all;  // most responses are for everybody: copied and encoded once
  for (int port = 1; port < ports_.size(); ++port) {
    const auto is_for = [&](const Response& response) { return relay_.IsFor(response, port); };
    if (std::none_of(responses.begin(), responses.end(), is_for)) continue;
    if (std::all_of(responses.begin(), responses.end(), is_for)) {
      if (for_all.empty()) for_all = encoded(responses);
      SendBytes(ports_.peer(port), for_all);
      continue;
    }
    std::vector<Response> some;
    std::copy_if(responses.begin(), responses.end(), std::back_inserter(some), is_for);
    SendBytes(ports_.peer(port), encoded(std::move(some)));
  }
}

void ControlLoop::Deliver(Response response) {
  // This rank has joined, or had when it was decided.
  if (std::binary_search(response.absent.begin(), response.absent.end(), world_.rank)) return;
  std::vector<std::shared_ptr<Request>> requests;
  requests.reserve(response.tensors.size());
  for (size_t i = 0; i < response.tensors.size(); ++i) {
    const ResponseTensor& tensor = response.tensors[i];
    ++(tensor.id != 0 && !tensor.cache ? counters_.tensors_cached : counters_.tensors_in_full);
    std::shared_ptr<Request> request;
    if (const Status status = Match(response, i, &request); !status.ok()) {
      for (auto& matched : requests) EndScheduled(std::move(matched), status);
      return Abort(status);
    }
    requests.push_back(std::move(request));
  }
  if (response.status.ok()) ++counters_.calls;
  runner_->Post(std::move(response), std::move(requests));
}

Status ControlLoop::Match(const Response& response, size_t i, std::shared_ptr<Request>* request) {
  const Signature& s = *response.tensors[i].signature;
  const auto part =
      in_parts_.empty() ? in_parts_.end() : in_parts_.find(Key(s.process_set, s.name));
  const bool begun = part != in_parts_.end();
  const int64_t next = begun ? part->second.next : 0;
  *request = begun ? part->second.request : queue_->Schedule(s.process_set, s.name);
  if (*request == nullptr) {
    return check_.Bad(source(),
                      StrCat("position ", response.sequence, " of the stream, with ", s.Title(),
                             ", which ", world_.RankText(world_.rank), " has not announced"));
  }
  Status status;
  if (response.status.ok()) {
    status = check_.CheckMine(source(), response, i, **request);
    if (status.ok() && response.part_begin != next) {
      status = check_.Bad(source(), StrCat("the part of ", s.Title(), " from element ",
                                           response.part_begin, " on instead of ", next));
    }
  }
  if (!status.ok()) {
    if (!begun) EndScheduled(std::move(*request), status);
  } else if (!response.is_last_part()) {
    in_parts_[{s.process_set, s.name}] = {*request, next + response.part_count};
  } else if (begun) {
    in_parts_.erase(part);
  }
  return status;
}

void ControlLoop::EndScheduled(std::shared_ptr<Request> request, const Status& status) {
  Response end;
  end.status = status;
  end.tensors.push_back({0, false, std::make_shared<const Signature>(request->signature)});
  runner_->Post(std::move(end), {std::move(request)});
}

void ControlLoop::OnTimer() {
  LookAtReport();
  CheckLiveness();
  if ((!Inspects() && !WatchesRunner()) || now_ < next_inspection_) return;
  next_inspection_ = now_ + kInspection;
  std::vector<std::string> warnings;
  Status status;
  if (WatchesRunner()) status = run_watch_.Look(runner_->running(), now_, &warnings);
  if (status.ok() && Inspects()) status = negotiator_.Inspect(now_, &warnings);
  for (const std::string& text : warnings) HVD_LOG(kWarning) << text;
  if (!status.ok()) Abort(status);
}

bool ControlLoop::Inspects() const { return !ended_ && is_coordinator() && negotiator_.waiting(); }

bool ControlLoop::WatchesRunner() const {
  return !aborted_ && runner_->in_flight() > 0 && run_watch_.wanted();
}

void ControlLoop::LookAtReport() {
  if (!reported_) {
    std::lock_guard<std::mutex> lock(mutex_);
    reported_ = report_;
    report_deadline_ = now_ + kCauseTime;
  }
  if (reported_ && now_ >= report_deadline_) Abort(*reported_);
}

void ControlLoop::CheckLiveness() {
  for (int peer : liveness_.Ask(now_)) SendFrame(peer, {FrameType::kHeartbeat, 0, {}, {}, 0, {}});
  if (const int peer = liveness_.Silent(now_); peer >= 0) {
    Abort(Status::PeerLost(StrCat(world_.RankText(peer), " is lost: silent for more than ",
                                  config_.heartbeat_timeout_s,
                                  " s (HOROVOD_HEARTBEAT_TIMEOUT_SECONDS)")));
  }
}

void ControlLoop::SendFrame(int peer, Frame frame) {
  frame.generation = world_.generation;
  SendBytes(peer, Encode(frame));
}

void ControlLoop::SendBytes(int peer, std::string bytes) {
  ++counters_.frames_sent;
  counters_.frame_bytes_sent += bytes.size();
  control_.Send(peer, std::move(bytes));
}

void ControlLoop::Stop(int exit_status) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!stop_status_ || *stop_status_ == 0) stop_status_ = exit_status;
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
