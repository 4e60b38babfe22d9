#include "tf_ops/transport/net/host_memory_start.h"

#include <algorithm>
#include <utility>

#include "tf_ops/base/log.h"
#include "tf_ops/base/strings.h"
#include "tf_ops/transport/net/start_step.h"

namespace hvd {
namespace {

constexpr char kLostFd[] =
    "its descriptor did not arrive; raise the limit on open files (ulimit -n)";

}  // namespace

// A host of one rank shares memory with nobody.
HostMemoryStart::HostMemoryStart(const World& world, const Topology& topology,
                                 SocketControl* control, HostMemory* memory, bool required)
    : world_(world),
      control_(control),
      memory_(memory),
      required_(required),
      rank_(world.rank),
      host_(topology.host(world.rank)),
      decided_(memory == nullptr || host_.size() < 2) {}

void HostMemoryStart::Begin() {
  if (decided_) return;
  Fd fd;
  const std::string obstacle = memory_->Make(&fd);
  if (!obstacle.empty()) Note(StrCat("rank ", rank_, ": ", obstacle));
  given_.insert(rank_);
  parts_[rank_] = std::make_shared<const Fd>(std::move(fd));
}

void HostMemoryStart::Note(const std::string& obstacle) {
  if (obstacle_.empty()) obstacle_ = obstacle;
}

void HostMemoryStart::GiveTo(int leader) {
  if (decided_) return;
  if (!control_->is_unix(leader)) {
    Note(StrCat("rank ", rank_, " cannot reach rank ", leader, " by a Unix socket"));
  }
  SendPart(rank_, leader, obstacle_);
}

// `obstacle`: why there is none, or empty.
void HostMemoryStart::SendPart(int rank, int to, const std::string& obstacle) {
  WireWriter writer;
  writer.Put(StartStep::kPart);
  writer.Put(rank);
  writer.PutString(obstacle);
  if (obstacle.empty()) {
    control_->SendWithFd(to, writer.Take(), parts_[rank]);
  } else {
    control_->Send(to, writer.Take());
  }
}

Status HostMemoryStart::OnPart(int peer, WireReader* reader) {
  const int rank = reader->Get<int>();
  std::string obstacle = reader->GetString();
  const auto in_host = [&](int r) {
    return std::find(host_.begin(), host_.end(), r) != host_.end();
  };
  const bool right_sender = is_leader() ? peer == rank : peer == host_[0];
  if (!reader->done() || decided_ || rank == rank_ || !in_host(rank) || !right_sender) {
    return Status::Internal(StrCat(world_.RankText(peer),
                                   " sent a part of the host's memory as rank ", rank,
                                   "'s, which is not due"));
  }
  if (obstacle.empty()) {
    Fd fd = control_->TakeFd(peer);
    obstacle = fd.valid() ? memory_->Take(rank, fd) : kLostFd;
    if (!obstacle.empty()) {
      obstacle = StrCat("rank ", rank_, " cannot use the part of rank ", rank, ": ", obstacle);
    }
    if (is_leader()) parts_[rank] = std::make_shared<const Fd>(std::move(fd));
  }
  Note(obstacle);
  if (is_leader()) {
    given_.insert(rank);
    return Status::Ok();
  }
  received_.insert(rank);
  if (received_.size() + 1 == host_.size()) {
    WireWriter writer;
    writer.Put(StartStep::kTaken);
    writer.PutString(obstacle_);
    control_->Send(peer, writer.Take());
  }
  return Status::Ok();
}

Status HostMemoryStart::OnTaken(int peer, WireReader* reader) {
  const std::string obstacle = reader->GetString();
  if (!reader->done() || decided_ || !passed_on_ || given_.count(peer) == 0) {
    return Status::Internal(
        StrCat(world_.RankText(peer), " sent word of the host's memory, which is not due"));
  }
  Note(obstacle);
  have_all_.insert(peer);
  return Status::Ok();
}

Status HostMemoryStart::Proceed() {
  if (decided_ || !is_leader() || given_.size() < host_.size()) return Status::Ok();
  if (!passed_on_ && obstacle_.empty()) PassOn();
  if (passed_on_ && have_all_.size() + 1 < host_.size()) return Status::Ok();
  return Decide();
}

void HostMemoryStart::PassOn() {
  passed_on_ = true;
  for (int member : host_) {
    for (int r : host_) {
      if (member != rank_ && r != member) SendPart(r, member, {});
    }
  }
  parts_.clear();
}

Status HostMemoryStart::Decide() {
  OnVerdict(obstacle_.empty());
  if (usable_) return Status::Ok();
  const std::string text =
      StrCat("shared memory is not usable on host ", world_.hosts[rank_], ": ", obstacle_);
  if (required_) {
    return Status::FailedPrecondition(
        StrCat("HOROVOD_TRANSPORT=shm: ", text, "; set it to auto or tcp"));
  }
  HVD_LOG(kWarning) << text << "; using TCP inside it";
  return Status::Ok();
}

void HostMemoryStart::OnVerdict(bool usable) {
  if (decided_) return;
  decided_ = true;
  usable_ = usable;
  memory_->Decide(usable);
}

bool HostMemoryStart::Awaits(int member) const {
  return !decided_ && (passed_on_ ? have_all_ : given_).count(member) == 0;
}

}  // namespace hvd
