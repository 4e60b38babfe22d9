#include "tf_ops/transport/net/tree_start.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "tf_ops/base/log.h"
#include "tf_ops/base/strings.h"
#include "tf_ops/transport/net/caller.h"
#include "tf_ops/transport/net/endpoint.h"

namespace hvd {
namespace {

// How long who fails waits for neighbors that are not there yet, to tell them why.  It holds
// back the caller's own error, for which 2 s are promised (docs/reliability.md).
constexpr auto kToTell = std::chrono::milliseconds(1500);

constexpr char kLostFd[] =
    "its descriptor did not arrive; raise the limit on open files (ulimit -n)";

}  // namespace

TreeStart::TreeStart(const TreeStartArgs& args)
    : world_(*args.world),
      a_(args),
      topology_(world_.hosts),
      rank_(world_.rank),
      parent_(topology_.parent(rank_)),
      call_(args.table) {}

std::vector<int> TreeStart::HostMembers() const {
  const std::vector<int>& host = topology_.host(rank_);
  return {host.begin() + 1, host.end()};
}

Status TreeStart::Run(Deadline deadline) {
  started_ = true;
  // A host of one rank shares memory with nobody.
  decided_ = a_.memory == nullptr || topology_.host(rank_).size() < 2;
  if (!decided_) {
    Fd fd;
    const std::string obstacle = a_.memory->Make(&fd);
    if (!obstacle.empty()) Note(StrCat("rank ", rank_, ": ", obstacle));
    given_.insert(rank_);
    parts_[rank_] = std::make_shared<const Fd>(std::move(fd));
  }
  for (int peer : topology_.neighbors(rank_)) {
    const pid_t pid = topology_.same_host(rank_, peer)
                          ? VisiblePid(world_.endpoints[peer], world_.endpoints[rank_])
                          : 0;
    if (pid != 0) a_.control->Watch(peer, pid);
  }
  Came({rank_});
  if (parent_ >= 0) StartCall(deadline);
  const Status status = Proceed(deadline);
  if (!status.ok()) GiveUp(status, Earlier(deadline, Deadline::After(kToTell)));
  EndCall();
  parts_.clear();
  a_.control->EndStart();
  started_ = false;
  if (woken_) a_.control->Wake();
  return status;
}

Status TreeStart::Proceed(Deadline deadline) {
  for (;;) {
    HVD_RETURN_IF_ERROR(a_.stop->reason());
    HVD_RETURN_IF_ERROR(AttachParent());
    HVD_RETURN_IF_ERROR(DecideMemory());
    if (IsComplete() && parent_ < 0) Welcome();
    if (welcomed_) return Status::Ok();
    if (IsComplete() && !reported_ && a_.control->attached(parent_)) {
      reported_ = true;
      SendUp(Step::kReady, {});
    }
    if (deadline.passed()) return TooLate();
    const ControlEvent event = a_.control->WaitAny(deadline);
    if (event.type == ControlEvent::Type::kFrame) {
      HVD_RETURN_IF_ERROR(OnFrame(event.peer, event.frame));
    } else if (event.type == ControlEvent::Type::kClosed) {
      lost_.insert(event.peer);
      return Status::PeerLost(
          StrCat(world_.RankText(event.peer), " left during init(): ", event.text));
    } else if (event.type == ControlEvent::Type::kWake) {
      woken_ = true;
    }
  }
}

void TreeStart::StartCall(Deadline deadline) {
  const bool by_unix = a_.use_unix && topology_.same_host(rank_, parent_);
  calling_ = true;
  try {
    call_.thread = std::thread([this, deadline, by_unix] {
      call_.status = CallPeer(world_, parent_, Callable(world_.endpoints[parent_], by_unix),
                              Channel::kControl, a_.table, call_.hang_up.fd(), deadline, &call_.fd);
      call_.over = true;
      a_.control->Wake();
    });
  } catch (const std::system_error& error) {
    call_.status = Status::Internal(StrCat(
        "rank ", rank_, " has no thread left to call ", world_.RankText(parent_), ": ",
        error.what(), "; raise the limit on threads (ulimit -u, pids.max of the container)"));
    call_.over = true;
  }
}

void TreeStart::EndCall() {
  if (!call_.thread.joinable()) return;
  call_.hang_up.Ring();
  call_.thread.join();
}

Status TreeStart::AttachParent() {
  if (!calling_ || !call_.over) return Status::Ok();
  calling_ = false;
  EndCall();
  HVD_RETURN_IF_ERROR(call_.status);
  a_.control->Attach(parent_, std::move(call_.fd));
  SendUp(Step::kCame, {came_.begin(), came_.end()});
  if (!decided_ && topology_.same_host(rank_, parent_)) GivePart();
  return Status::Ok();
}

void TreeStart::OnPeer(int peer, Fd fd) {
  const std::vector<int>& children = topology_.children(rank_);
  if (!started_ || came_.count(peer) > 0 ||
      !std::binary_search(children.begin(), children.end(), peer)) {
    HVD_LOG(kWarning) << "rank " << peer << " opened a control connection that is not due; dropped";
    return;
  }
  a_.control->Attach(peer, std::move(fd));
  Came({peer});
  a_.control->Interrupt();
}

// A leader awaits nothing of the kind from the members of its host: what comes late would
// be taken for a frame of the negotiation.
void TreeStart::SendUp(Step step, const std::vector<int>& ranks) {
  if (parent_ < 0 || topology_.same_host(rank_, parent_)) return;
  WireWriter writer;
  writer.Put(step);
  writer.PutVector(ranks);
  a_.control->Send(parent_, writer.Take());
}

void TreeStart::Came(const std::vector<int>& ranks) {
  came_.insert(ranks.begin(), ranks.end());
  SendUp(Step::kCame, ranks);  // to nobody, before the parent is there
}

Status TreeStart::OnFrame(int peer, const std::string& frame) {
  const auto broken = [&] {
    return Status::Internal(
        StrCat(world_.RankText(peer), " sent a frame that is not due in init()"));
  };
  WireReader reader(frame);
  const bool from_parent = peer == parent_;
  const Step step = reader.GetEnum<Step>(kNumSteps);
  switch (step) {
    case Step::kCame: {
      const std::vector<int> ranks = reader.GetVector<int>();
      const std::vector<int>& below = topology_.subtree(peer);
      const auto is_below = [&](int r) {
        return std::binary_search(below.begin(), below.end(), r);
      };
      if (from_parent || !reader.done() || !std::all_of(ranks.begin(), ranks.end(), is_below)) {
        return broken();
      }
      Came(ranks);
      return Status::Ok();
    }
    case Step::kPart:
      return OnPart(peer, &reader);
    case Step::kTaken:
      Note(reader.GetString());
      taken_.insert(peer);
      return from_parent || !reader.done() ? broken() : Status::Ok();
    case Step::kReady:
      ready_.insert(peer);
      return from_parent ? broken() : Status::Ok();
    case Step::kWelcome:
      if (topology_.same_host(rank_, peer)) {
        usable_ = reader.Get<uint8_t>() != 0;
        if (a_.memory != nullptr && !decided_) a_.memory->Decide(usable_);
      }
      if (!from_parent || !reader.ok()) return broken();
      Welcome();
      return Status::Ok();
    case Step::kGiveUp: {
      const Code code = reader.GetEnum<Code>(kNumCodes);
      const std::string text = reader.GetString();
      if (!reader.done() || code == Code::kOk) return broken();
      // Who sees the whole tree knows better who is missing.
      if (code == Code::kDeadlineExceeded && !from_parent) return TooLate();
      return Status(code, text);
    }
  }
  return broken();
}

bool TreeStart::IsComplete() const {
  if (!decided_ && (parent_ < 0 || !topology_.same_host(rank_, parent_))) return false;
  if (came_.size() < topology_.subtree(rank_).size()) return false;
  for (int child : topology_.children(rank_)) {
    if (!topology_.same_host(rank_, child) && ready_.count(child) == 0) return false;
  }
  return true;
}

void TreeStart::Welcome() {
  for (int child : topology_.children(rank_)) {
    WireWriter writer;
    writer.Put(Step::kWelcome);
    if (topology_.same_host(rank_, child)) writer.Put(static_cast<uint8_t>(usable_));
    a_.control->Send(child, writer.Take());
  }
  welcomed_ = true;
}

void TreeStart::GiveUp(const Status& why, Deadline deadline) {
  std::set<int> told;
  for (;;) {
    if (!a_.stop->reason().ok()) return;
    (void)AttachParent();
    bool all = true;
    for (int peer : topology_.neighbors(rank_)) {
      if (a_.control->attached(peer) && told.insert(peer).second) {
        WireWriter writer;
        writer.Put(Step::kGiveUp);
        writer.Put(why.code());
        writer.PutString(why.message());
        a_.control->Send(peer, writer.Take());
      }
      const bool may_come = peer == parent_ ? calling_ : came_.count(peer) == 0;
      all = all && (told.count(peer) > 0 || lost_.count(peer) > 0 || !may_come);
    }
    if (all || deadline.passed()) return;
    const ControlEvent event = a_.control->WaitAny(deadline);
    if (event.type == ControlEvent::Type::kClosed) lost_.insert(event.peer);
  }
}

Status TreeStart::TooLate() const {
  const std::string trouble = a_.acceptor->trouble();
  const std::string because = trouble.empty() ? "" : StrCat("; ", trouble);
  std::vector<int> waited_for;
  for (int r : topology_.subtree(rank_)) {
    if (came_.count(r) == 0) waited_for.push_back(r);
  }
  if (!waited_for.empty()) {
    return Status::DeadlineExceeded(StrCat(RanksText(waited_for), " of ", world_.size,
                                           " did not connect to rank ", rank_, " in time",
                                           because));
  }
  if (IsComplete()) {
    return Status::DeadlineExceeded(
        StrCat(world_.RankText(parent_), " did not hear from all ranks in time", because));
  }
  for (int child : topology_.children(rank_)) {
    const bool in_host = topology_.same_host(rank_, child);
    const std::set<int>& answered = !in_host ? ready_ : passed_on_ ? taken_ : given_;
    if (answered.count(child) == 0 && !(in_host && decided_)) waited_for.push_back(child);
  }
  return Status::DeadlineExceeded(
      StrCat(RanksText(waited_for), " connected, but stopped answering rank ", rank_, because));
}

// ---- The host's memory ----

void TreeStart::Note(const std::string& obstacle) {
  if (obstacle_.empty()) obstacle_ = obstacle;
}

// A member gives its part, or says why not, to the leader.
void TreeStart::GivePart() {
  if (!a_.control->is_unix(parent_)) {
    Note(StrCat("rank ", rank_, " cannot reach rank ", parent_, " by a Unix socket"));
  }
  SendPart(rank_, parent_, obstacle_);
}

// `obstacle`: why there is none, or empty.
void TreeStart::SendPart(int rank, int to, const std::string& obstacle) {
  WireWriter writer;
  writer.Put(Step::kPart);
  writer.Put(rank);
  writer.PutString(obstacle);
  if (obstacle.empty()) {
    a_.control->SendWithFd(to, writer.Take(), parts_[rank]);
  } else {
    a_.control->Send(to, writer.Take());
  }
}

Status TreeStart::OnPart(int peer, WireReader* reader) {
  const int rank = reader->Get<int>();
  std::string obstacle = reader->GetString();
  const bool from_parent = peer == parent_;
  if (!reader->done() || decided_ || rank < 0 || rank >= world_.size || rank == rank_ ||
      !topology_.same_host(rank, rank_) || (!from_parent && rank != peer)) {
    return Status::Internal(StrCat(world_.RankText(peer),
                                   " sent a part of the host's memory as rank ", rank,
                                   "'s, which is not due"));
  }
  if (obstacle.empty()) {
    Fd fd = a_.control->TakeFd(peer);
    obstacle = fd.valid() ? a_.memory->Take(rank, fd) : kLostFd;
    if (!obstacle.empty()) {
      obstacle = StrCat("rank ", rank_, " cannot use the part of rank ", rank, ": ", obstacle);
    }
    if (!from_parent) parts_[rank] = std::make_shared<const Fd>(std::move(fd));
  }
  Note(obstacle);
  if (!from_parent) {
    given_.insert(rank);
    return Status::Ok();
  }
  taken_.insert(rank);
  if (taken_.size() + 1 == topology_.host(rank_).size()) {
    WireWriter writer;
    writer.Put(Step::kTaken);
    writer.PutString(obstacle_);
    a_.control->Send(parent_, writer.Take());
  }
  return Status::Ok();
}

// The leader: passes the parts on once it has all, and decides when all have taken them.
Status TreeStart::DecideMemory() {
  if (decided_ || topology_.host(rank_)[0] != rank_) return Status::Ok();
  const std::vector<int>& host = topology_.host(rank_);
  if (given_.size() < host.size()) return Status::Ok();
  if (!passed_on_ && obstacle_.empty()) {
    passed_on_ = true;
    for (int member : HostMembers()) {
      for (int r : host) {
        if (r != member) SendPart(r, member, {});
      }
    }
    parts_.clear();
  }
  if (passed_on_ && taken_.size() + 1 < host.size()) return Status::Ok();
  decided_ = true;
  usable_ = obstacle_.empty();
  a_.memory->Decide(usable_);
  if (usable_) return Status::Ok();
  const std::string text =
      StrCat("shared memory is not usable on host ", world_.hosts[rank_], ": ", obstacle_);
  if (a_.memory_required) {
    return Status::FailedPrecondition(
        StrCat("HOROVOD_TRANSPORT=shm: ", text, "; set it to auto or tcp"));
  }
  HVD_LOG(kWarning) << text << "; using TCP inside it";
  return Status::Ok();
}

}  // namespace hvd
