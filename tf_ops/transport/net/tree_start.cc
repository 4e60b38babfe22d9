#include "tf_ops/transport/net/tree_start.h"

#include <sys/types.h>

#include <algorithm>
#include <cstdint>
#include <system_error>
#include <utility>

#include "tf_ops/base/log.h"
#include "tf_ops/base/strings.h"
#include "tf_ops/base/wire.h"
#include "tf_ops/transport/net/caller.h"
#include "tf_ops/transport/net/endpoint.h"

namespace hvd {
namespace {

// How long who fails waits for neighbors that are not there yet, to tell them why.  It holds
// back the caller's own error, for which 2 s are promised (docs/reliability.md).
constexpr auto kToTell = std::chrono::milliseconds(1500);

}  // namespace

TreeStart::TreeStart(const TreeStartArgs& args)
    : world_(*args.world),
      a_(args),
      topology_(world_.hosts),
      rank_(world_.rank),
      parent_(topology_.parent(rank_)),
      memory_(world_, topology_, args.control, args.memory, args.memory_required),
      call_(args.table) {}

Status TreeStart::Run(Deadline deadline) {
  started_ = true;
  memory_.Begin();
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
  memory_.End();
  a_.control->EndStart();
  started_ = false;
  if (woken_) a_.control->Wake();
  return status;
}

Status TreeStart::Proceed(Deadline deadline) {
  for (;;) {
    HVD_RETURN_IF_ERROR(a_.stop->reason());
    HVD_RETURN_IF_ERROR(AttachParent());
    HVD_RETURN_IF_ERROR(memory_.Proceed());
    if (IsComplete() && parent_ < 0) Welcome();
    if (welcomed_) return Status::Ok();
    if (IsComplete() && !reported_ && a_.control->attached(parent_)) {
      reported_ = true;
      SendUp(StartStep::kReady, {});
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
  SendUp(StartStep::kCame, {came_.begin(), came_.end()});
  if (topology_.same_host(rank_, parent_)) memory_.GiveTo(parent_);
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
void TreeStart::SendUp(StartStep step, const std::vector<int>& ranks) {
  if (parent_ < 0 || topology_.same_host(rank_, parent_)) return;
  WireWriter writer;
  writer.Put(step);
  writer.PutVector(ranks);
  a_.control->Send(parent_, writer.Take());
}

void TreeStart::Came(const std::vector<int>& ranks) {
  came_.insert(ranks.begin(), ranks.end());
  SendUp(StartStep::kCame, ranks);  // to nobody, before the parent is there
}

Status TreeStart::OnFrame(int peer, const std::string& frame) {
  const auto broken = [&] {
    return Status::Internal(
        StrCat(world_.RankText(peer), " sent a frame that is not due in init()"));
  };
  WireReader reader(frame);
  const bool from_parent = peer == parent_;
  const StartStep step = reader.GetEnum<StartStep>(kNumStartSteps);
  switch (step) {
    case StartStep::kCame: {
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
    case StartStep::kPart:
      return memory_.OnPart(peer, &reader);
    case StartStep::kTaken:
      return memory_.OnTaken(peer, &reader);
    case StartStep::kReady:
      ready_.insert(peer);
      return from_parent ? broken() : Status::Ok();
    case StartStep::kWelcome: {
      const bool in_host = topology_.same_host(rank_, peer);
      const bool usable = in_host && reader.Get<uint8_t>() != 0;
      if (!from_parent || !reader.done()) return broken();
      if (in_host) memory_.OnVerdict(usable);
      Welcome();
      return Status::Ok();
    }
    case StartStep::kGiveUp: {
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
  if (!memory_.decided() && (parent_ < 0 || !topology_.same_host(rank_, parent_))) return false;
  if (came_.size() < topology_.subtree(rank_).size()) return false;
  for (int child : topology_.children(rank_)) {
    if (!topology_.same_host(rank_, child) && ready_.count(child) == 0) return false;
  }
  return true;
}

void TreeStart::Welcome() {
  for (int child : topology_.children(rank_)) {
    WireWriter writer;
    writer.Put(StartStep::kWelcome);
    if (topology_.same_host(rank_, child)) writer.Put(static_cast<uint8_t>(memory_.usable()));
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
        writer.Put(StartStep::kGiveUp);
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
    if (in_host ? memory_.Awaits(child) : ready_.count(child) == 0) waited_for.push_back(child);
  }
  return Status::DeadlineExceeded(
      StrCat(RanksText(waited_for), " connected, but stopped answering rank ", rank_, because));
}

}  // namespace hvd
