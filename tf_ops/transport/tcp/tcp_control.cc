#include "tf_ops/transport/tcp/tcp_control.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "tf_ops/base/strings.h"
#include "tf_ops/transport/tcp/socket.h"

namespace hvd {
namespace {

// What epoll hands back: a peer's number, or one of these.
constexpr int kBell = -1;
constexpr int kAcceptor = -2;

void Register(int epoll, int operation, int fd, int who, uint32_t events) {
  epoll_event event = {};
  event.events = events;
  event.data.fd = who;
  epoll_ctl(epoll, operation, fd, &event);
}

}  // namespace

TcpControl::TcpControl(FdTable* table, Acceptor* acceptor)
    : epoll_(Fd::Make(table, [] { return epoll_create1(EPOLL_CLOEXEC); })),
      bell_(table),
      acceptor_(acceptor) {
  Register(epoll_.get(), EPOLL_CTL_ADD, bell_.fd(), kBell, EPOLLIN);
  if (acceptor_ != nullptr) {
    Register(epoll_.get(), EPOLL_CTL_ADD, acceptor_->fd(), kAcceptor, EPOLLIN);
  }
}

void TcpControl::Attach(int peer, Fd fd) {
  Register(epoll_.get(), EPOLL_CTL_ADD, fd.get(), peer, EPOLLIN);
  links_[peer].fd = std::move(fd);
}

void TcpControl::Send(int peer, std::string frame) {
  const auto it = links_.find(peer);
  if (it == links_.end()) return;
  const uint32_t size = static_cast<uint32_t>(frame.size());
  it->second.out.append(reinterpret_cast<const char*>(&size), sizeof(size));
  it->second.out.append(frame);
  Flush(peer, &it->second);
}

void TcpControl::Flush(int peer, Link* link) {
  size_t sent = 0;
  while (sent < link->out.size()) {
    const ssize_t n =
        send(link->fd.get(), link->out.data() + sent, link->out.size() - sent, MSG_NOSIGNAL);
    if (n > 0) {
      sent += n;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    } else if (errno != EINTR) {
      // Reading finds out that the peer is gone, after what it still had to say.
      sent = link->out.size();
    }
  }
  link->out.erase(0, sent);
  const bool writing = !link->out.empty();
  if (writing != link->writing) {
    link->writing = writing;
    Register(epoll_.get(), EPOLL_CTL_MOD, link->fd.get(), peer,
             EPOLLIN | (writing ? EPOLLOUT : 0u));
  }
}

ControlEvent TcpControl::WaitAny(Deadline deadline) {
  for (;;) {
    if (!events_.empty()) {
      ControlEvent event = std::move(events_.front());
      events_.pop_front();
      return event;
    }
    const bool last = deadline.passed();
    Turn(deadline);
    if (last && events_.empty()) return {};
  }
}

void TcpControl::Turn(Deadline deadline) {
  if (acceptor_ != nullptr) deadline = Earlier(deadline, acceptor_->deadline());
  epoll_event ready[64];
  const int n = epoll_wait(epoll_.get(), ready, 64, deadline.poll_ms());
  bool step = n == 0;  // a handshake may be past its deadline
  for (int i = 0; i < n; ++i) {
    const int who = ready[i].data.fd;
    if (who == kBell) {
      bell_.Clear();
      events_.push_back({ControlEvent::Type::kWake, -1, {}, {}});
    } else if (who == kAcceptor) {
      step = true;
    } else if (auto it = links_.find(who); it != links_.end()) {
      if (ready[i].events & EPOLLOUT) Flush(who, &it->second);
      if (ready[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) ReadFrom(who, &it->second);
    }
  }
  if (step && acceptor_ != nullptr) acceptor_->Step();
}

void TcpControl::ReadFrom(int peer, Link* link) {
  char buffer[64 << 10];
  for (;;) {
    const ssize_t n = recv(link->fd.get(), buffer, sizeof(buffer), 0);
    if (n > 0) {
      link->in.append(buffer, n);
      CutFrames(peer, link);
      if (links_.count(peer) == 0 || n < static_cast<ssize_t>(sizeof(buffer))) return;
    } else if (n == 0) {
      return Lose(peer, "its connection was closed");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    } else if (errno != EINTR) {
      return Lose(peer, StrCat("its connection failed: ", ErrnoText(errno)));
    }
  }
}

void TcpControl::CutFrames(int peer, Link* link) {
  size_t at = 0;
  for (;;) {
    uint32_t size;
    if (link->in.size() - at < sizeof(size)) break;
    std::memcpy(&size, link->in.data() + at, sizeof(size));
    if (size > kMostFrameBytes) {
      return Lose(peer, StrCat("it sent a frame of ", size, " bytes; at most ", kMostFrameBytes,
                               " are allowed"));
    }
    if (link->in.size() - at - sizeof(size) < size) break;
    events_.push_back(
        {ControlEvent::Type::kFrame, peer, link->in.substr(at + sizeof(size), size), {}});
    at += sizeof(size) + size;
  }
  link->in.erase(0, at);
}

void TcpControl::Lose(int peer, const std::string& why) {
  links_.erase(peer);  // closing takes it out of the epoll set
  events_.push_back({ControlEvent::Type::kClosed, peer, {}, why});
}

void TcpControl::Finish(Deadline deadline) {
  // Half-close, then read until the peer closes: data unread at close() would reset the
  // connection and could destroy the goodbye on its way.
  bool closing = false;
  while (!links_.empty() && !deadline.passed()) {
    bool flushed = true;
    for (auto& [peer, link] : links_) flushed = flushed && link.out.empty();
    if (flushed && !closing) {
      closing = true;
      for (auto& [peer, link] : links_) shutdown(link.fd.get(), SHUT_WR);
    }
    Turn(deadline);
  }
  links_.clear();
}

}  // namespace hvd
