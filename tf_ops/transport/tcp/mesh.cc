#include "tf_ops/transport/tcp/mesh.h"

#include <sys/socket.h>

#include <utility>

#include "tf_ops/base/strings.h"
#include "tf_ops/transport/net/caller.h"
#include "tf_ops/transport/net/endpoint.h"

namespace hvd {

Status TcpMesh::Get(int peer, Deadline deadline, DataLink** link) {
  *link = &links_[peer];
  if (links_[peer].fd.valid()) return Status::Ok();
  if (world_.rank > peer) return CallFor(peer, deadline);

  std::unique_lock<std::mutex> lock(mutex_);
  const auto ready = [&] { return arrived_[peer].valid() || !stop_->reason().ok(); };
  if (deadline.never()) {
    changed_.wait(lock, ready);
  } else if (!changed_.wait_until(lock, deadline.at(), ready)) {
    return Status::DeadlineExceeded(StrCat(world_.RankText(peer), " did not connect in time"));
  }
  HVD_RETURN_IF_ERROR(stop_->reason());
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
