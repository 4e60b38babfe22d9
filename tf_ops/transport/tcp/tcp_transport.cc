#include "tf_ops/transport/tcp/tcp_transport.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "tf_ops/base/strings.h"
#include "tf_ops/transport/net/socket.h"

namespace hvd {
namespace {

struct Header {
  uint64_t number;
  uint64_t bytes;
};

// One direction of a transfer: a header, then a body, moved as far as the socket lets.
class Side {
 public:
  bool active() const { return fd_ >= 0; }
  int fd() const { return fd_; }

 protected:
  // The parts of [header, body] that have not been moved yet.
  int Remaining(void* body, size_t body_size, iovec* parts) {
    int n = 0;
    if (done_ < sizeof(Header)) {
      parts[n++] = {reinterpret_cast<char*>(&header_) + done_, sizeof(Header) - done_};
    }
    const size_t body_done = done_ > sizeof(Header) ? done_ - sizeof(Header) : 0;
    if (body_done < body_size) {
      parts[n++] = {static_cast<char*>(body) + body_done, body_size - body_done};
    }
    return n;
  }

  int fd_ = -1;  // -1: nothing to do, or done
  Header header_ = {};
  size_t done_ = 0;
};

class Sender : public Side {
 public:
  void Begin(DataLink* link, ConstBytes out) {
    fd_ = link->fd.get();
    out_ = out;
    header_ = {link->sent++, out.size};
  }
  Status Step() {
    while (fd_ >= 0) {
      iovec parts[2];
      msghdr message = {};
      message.msg_iov = parts;
      message.msg_iovlen = Remaining(const_cast<std::byte*>(out_.data), out_.size, parts);
      const ssize_t n = sendmsg(fd_, &message, MSG_NOSIGNAL);
      if (n < 0) {
        if (errno == EINTR) continue;
        if (errno == EAGAIN || errno == EWOULDBLOCK) return Status::Ok();
        return Status::PeerLost(ErrnoText(errno));
      }
      done_ += n;
      if (done_ == sizeof(Header) + out_.size) fd_ = -1;
    }
    return Status::Ok();
  }

 private:
  ConstBytes out_;
};

class Receiver : public Side {
 public:
  void Begin(DataLink* link, Bytes in) {
    fd_ = link->fd.get();
    in_ = in;
    number_ = link->received++;
  }
  Status Step() {
    while (fd_ >= 0) {
      // The body is not touched before the header has been believed.
      iovec parts[2];
      const bool header_first = done_ < sizeof(Header);
      int n_parts = Remaining(in_.data, in_.size, parts);
      if (header_first) n_parts = 1;
      msghdr message = {};
      message.msg_iov = parts;
      message.msg_iovlen = n_parts;
      const ssize_t n = recvmsg(fd_, &message, 0);
      if (n == 0) return Status::PeerLost("the connection was closed");
      if (n < 0) {
        if (errno == EINTR) continue;
        if (errno == EAGAIN || errno == EWOULDBLOCK) return Status::Ok();
        return Status::PeerLost(ErrnoText(errno));
      }
      done_ += n;
      if (header_first && done_ == sizeof(Header)) {
        if (header_.number != number_ || header_.bytes != in_.size) {
          return Status::Internal(StrCat("message ", header_.number, " of ", header_.bytes,
                                         " bytes came where message ", number_, " of ", in_.size,
                                         " bytes was due"));
        }
      }
      if (done_ == sizeof(Header) + in_.size) fd_ = -1;
    }
    return Status::Ok();
  }

 private:
  Bytes in_;
  uint64_t number_ = 0;
};

}  // namespace

TcpTransport::TcpTransport(TcpMesh* mesh, std::vector<int> members)
    : mesh_(mesh), members_(std::move(members)) {
  while (members_[rank_] != mesh_->world().rank) ++rank_;
}

Status TcpTransport::SendRecv(const SendRecvArgs& args) {
  if (failed_.ok()) failed_ = mesh_->stop().reason();
  if (failed_.ok()) {
    failed_ = Transfer(args);
    if (!failed_.ok()) mesh_->HangUp();
  }
  return failed_;
}

Status TcpTransport::Transfer(const SendRecvArgs& args) {
  const auto about = [&](int set_rank, const Status& status) {
    return Status(status.code(),
                  StrCat("lost touch with ", mesh_->world().RankText(members_[set_rank]), ": ",
                         status.message()));
  };
  Sender sender;
  Receiver receiver;
  DataLink* link = nullptr;
  if (args.to >= 0) {
    HVD_RETURN_IF_ERROR(mesh_->Get(members_[args.to], args.deadline, &link));
    sender.Begin(link, args.out);
  }
  if (args.from >= 0) {
    HVD_RETURN_IF_ERROR(mesh_->Get(members_[args.from], args.deadline, &link));
    receiver.Begin(link, args.in);
  }
  for (;;) {
    if (Status status = sender.Step(); !status.ok()) return about(args.to, status);
    if (Status status = receiver.Step(); !status.ok()) return about(args.from, status);
    if (!sender.active() && !receiver.active()) return Status::Ok();

    pollfd fds[3] = {
        {sender.fd(), POLLOUT, 0}, {receiver.fd(), POLLIN, 0}, {mesh_->stop().fd(), POLLIN, 0}};
    const int n = poll(fds, 3, args.deadline.poll_ms());  // a negative fd is passed over
    if (n < 0 && errno != EINTR) return Status::Internal(StrCat("poll: ", ErrnoText(errno)));
    if (n == 0 && args.deadline.passed()) {
      return Status::DeadlineExceeded(
          StrCat("no answer in time from ",
                 mesh_->world().RankText(members_[receiver.active() ? args.from : args.to])));
    }
    if (n > 0 && fds[2].revents != 0) return mesh_->stop().reason();
    if (n > 0) ++moved_;
  }
}

}  // namespace hvd
