#include "tf_ops/transport/tcp/mesh.h"

#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "tf_ops/base/strings.h"
#include "tf_ops/transport/net/caller.h"
#include "tf_ops/transport/net/endpoint.h"

namespace hvd {

Status TcpMesh::Get(int peer, Deadline deadline, DataLink** link) {
  *link = &links_[peer];
  if (links_[peer].fd.valid()) return Status::Ok();
  return world_.rank > peer ? CallFor(peer, deadline) : AwaitCall(peer, deadline);
}

Status TcpMesh::AwaitCall(int peer, Deadline deadline) {
  const auto began = Clock::now();
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    HVD_RETURN_IF_ERROR(stop_->reason());
    if (arrived_[peer].valid()) break;
    if (deadline.passed()) {
      return Status::DeadlineExceeded(StrCat(world_.RankText(peer), " did not connect in time"));
    }
    Deadline patience;
    if (!trouble_.empty()) patience = Deadline(std::max(began, trouble_since_) + most_trouble_);
    if (patience.passed()) {
      return Status::Internal(
          StrCat(world_.RankText(peer), " could not be let in: rank ", world_.rank, " ", trouble_));
    }
    // Adopt(), SetTrouble() and Wake() end the wait.
    if (const Deadline until = Earlier(deadline, patience); until.never()) {
      changed_.wait(lock);
    } else {
      changed_.wait_until(lock, until.at());
    }
  }
  links_[peer].fd = std::move(arrived_[peer]);
  return Status::Ok();
}

Status TcpMesh::CallFor(int peer, Deadline deadline) {
  const Status status =
      CallPeer(world_, peer, Callable(world_.endpoints[peer], /*same_host=*/false), Channel::kData,
               table_, stop_->fd(), deadline, &links_[peer].fd);
  return status.code() == Code::kCancelled ? stop_->reason() : status;
}

void TcpMesh::Adopt(int peer, Fd fd) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (arrived_[peer].valid()) return;
  arrived_[peer] = std::move(fd);
  changed_.notify_all();
}

void TcpMesh::SetTrouble(const std::string& trouble) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (trouble_.empty()) trouble_since_ = Clock::now();
  trouble_ = trouble;
  changed_.notify_all();
}

void TcpMesh::Wake() {
  std::lock_guard<std::mutex> lock(mutex_);
  changed_.notify_all();
}

void TcpMesh::HangUp() {
  for (const DataLink& link : links_) {
    if (link.fd.valid()) shutdown(link.fd.get(), SHUT_RDWR);
  }
}

}  // namespace hvd
