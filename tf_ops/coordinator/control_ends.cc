// The part of ControlLoop about ends: in order, by the loss of a rank, and by abort.
//
// In order: a rank says goodbye, what was decided with it still runs, and the coordinator's
// farewell tells it that nothing more will come.  Who has nothing left to run says so (kOver),
// and goes when all below it have said so too: until then somebody must be there to notice
// that one of them dies in the middle of what still runs, and to tell the others.

#include <algorithm>
#include <utility>

#include "tf_ops/base/log.h"
#include "tf_ops/coordinator/control_loop.h"

namespace hvd {

bool ControlLoop::MayGo() {
  if (!ended_ || RunnerHas(1)) return false;
  if (aborted_) return stopping_;
  if (!std::exchange(said_over_, true)) {
    for (int peer : peers_) SendFrame(peer, {FrameType::kOver, 0, {}, {}, 0, {}});
  }
  const std::vector<int>& children = topology_.children(world_.rank);
  return stopping_ &&
         std::all_of(children.begin(), children.end(), [this](int c) { return over_[c]; });
}

void ControlLoop::HeedStop() {
  int exit_status;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!stop_status_) return;
    exit_status = *stop_status_;
  }
  const bool first = !std::exchange(stopping_, true);
  const bool needed = !ended_ || runner_->in_flight() > 0;
  if (exit_status != 0 && needed) {
    return Abort(
        Status::PeerLost(StrCat(world_.RankText(world_.rank), " ended with exit status ",
                                exit_status, "; see that rank's own output for the cause")));
  }
  if (!first || ended_) return;
  const Ending ending(Status::Shutdown("this rank has called shutdown()"));
  queue_->Close(ending);
  queue_->FailQueued(ending);
  if (!is_coordinator()) {
    // Ends with the coordinator's farewell: until then the stream may still need us.
    SendReports();
    return SendFrame(parent(), {FrameType::kGoodbye, 0, {}, {}, world_.rank, {}});
  }
  FlushStream(/*all=*/true);
  negotiator_.Leave(0, 0);
  FlushStream(/*all=*/true);
  OnFarewell(0);
}

void ControlLoop::OnClosed(int peer, const std::string& how) {
  liveness_.End(peer);
  if (over_[peer]) return;
  Abort(Status::PeerLost(StrCat(world_.RankText(peer), " is lost: ", how,
                                "; see the end of that rank's own output, or what its launcher "
                                "says of it, for the cause")));
}

// Who speaks for others takes them along: nobody else can reach them.
void ControlLoop::OnGoodbye(int rank) {
  if (!is_coordinator()) {
    for (int r : topology_.subtree(rank)) relay_.Leave(r);
    SendReports();
    return SendFrame(parent(), {FrameType::kGoodbye, 0, {}, {}, rank, {}});
  }
  // What was decided while it was here still runs, there too.
  FlushStream(/*all=*/true);
  for (int r : topology_.subtree(rank)) negotiator_.Leave(r, rank);
  FlushStream(/*all=*/true);
  OnFarewell(rank);
}

void ControlLoop::OnFarewell(int rank) {
  if (rank == world_.rank && (!stopping_ || !in_parts_.empty())) {
    return Abort(check_.Bad(source(), stopping_ ? "a farewell amidst the parts of a tensor"
                                                : "a farewell to a rank that has not left"));
  }
  if (rank != world_.rank) {
    let_go_[rank] = true;
    for (int child : topology_.children(world_.rank)) {
      const std::vector<int>& below = topology_.subtree(child);
      if (!std::binary_search(below.begin(), below.end(), rank)) continue;
      SendFrame(child, {FrameType::kFarewell, 0, {}, {}, rank, {}});
    }
    return;
  }
  ended_ = true;
  queue_->FailUnscheduled(Ending(Status::Shutdown("this rank has called shutdown()")));
  CutOffChildren(rank);
}

void ControlLoop::OnCutOff(int rank) {
  if (!in_parts_.empty()) {
    return Abort(check_.Bad(parent(), "its end amidst the parts of a tensor"));
  }
  ended_ = true;
  const std::string text =
      StrCat(world_.RankText(rank), rank == 0 ? "" : ", the way to rank 0,",
             " ended in order, and nothing can be agreed on without it; give every rank as many "
             "steps, or stop them all at the same one");
  const Ending ending(Status::Shutdown(text), Status::OutOfRange(text));
  {
    std::lock_guard<std::mutex> lock(mutex_);
    failure_ = ending.general;
  }
  queue_->Close(ending);
  queue_->FailUnscheduled(ending);
  CutOffChildren(rank);
}

void ControlLoop::CutOffChildren(int because) {
  for (int child : topology_.children(world_.rank)) {
    SendFrame(child, {FrameType::kCutOff, 0, {}, {}, because, {}});
  }
}

void ControlLoop::Abort(const Status& reason) {
  if (aborted_) return;
  const bool harmless = ended_ && runner_->in_flight() == 0;  // to this rank
  ended_ = aborted_ = true;
  liveness_.EndAll();
  // Whatever the cause, to every request it is the loss of the job.
  const bool is_loss = reason.code() == Code::kPeerLost || reason.code() == Code::kDeadlineExceeded;
  const Status why = is_loss ? reason : Status::PeerLost(reason.message());
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (failure_.ok()) failure_ = why;
  }
  // A rank that ends by itself has said why already.
  if (!stopping_ && !harmless) {
    HVD_LOG(kError) << "the job is lost: " << why.message();
  }
  for (int r : peers_) SendFrame(r, {FrameType::kAbort, 0, {}, {}, 0, why});
  queue_->Close(Ending(why));
  fabric_->Abort(why);
  runner_->Abort(why);
  queue_->FailUnscheduled(Ending(why));
  for (auto& item : in_parts_) EndScheduled(std::move(item.second.request), why);
  in_parts_.clear();
}

}  // namespace hvd
