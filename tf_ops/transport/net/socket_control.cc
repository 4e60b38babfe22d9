#include "tf_ops/transport/net/socket_control.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "tf_ops/base/log.h"
#include "tf_ops/base/strings.h"
#include "tf_ops/transport/net/socket.h"

namespace hvd {
namespace {

// What epoll hands back: a peer's number, or that and kProcess, or one of the others.
constexpr uint64_t kProcess = uint64_t{1} << 32;
constexpr uint64_t kBell = uint64_t{1} << 33;
constexpr uint64_t kAcceptor = uint64_t{1} << 34;

void Register(int epoll, int operation, int fd, uint64_t who, uint32_t events) {
  epoll_event event = {};
  event.events = events;
  event.data.u64 = who;
  epoll_ctl(epoll, operation, fd, &event);
}

int OpenPidfd(pid_t pid) {
#ifdef SYS_pidfd_open
  return static_cast<int>(syscall(SYS_pidfd_open, pid, 0));  // close-on-exec by itself
#else
  (void)pid;
  errno = ENOSYS;
  return -1;
#endif
}

// Room for one descriptor beside the bytes of a message.
union Ancillary {
  char bytes[CMSG_SPACE(sizeof(int))];
  cmsghdr align;
};

}  // namespace

SocketControl::SocketControl(FdTable* table, Acceptor* acceptor)
    : table_(table),
      epoll_(Fd::Make(table, [] { return epoll_create1(EPOLL_CLOEXEC); })),
      bell_(table),
      acceptor_(acceptor) {
  Register(epoll_.get(), EPOLL_CTL_ADD, bell_.fd(), kBell, EPOLLIN);
  if (acceptor_ != nullptr) {
    Register(epoll_.get(), EPOLL_CTL_ADD, acceptor_->fd(), kAcceptor, EPOLLIN);
  }
}

void SocketControl::Watch(int peer, pid_t pid) {
  Fd process = Fd::Make(table_, [&] { return OpenPidfd(pid); });
  if (!process.valid() && errno != ESRCH) {
    HVD_LOG(kDebug) << "no pidfd of rank " << peer << ": " << ErrnoText(errno)
                    << "; its end shows by its connection alone";
    return;
  }
  const int fd = process.get();
  processes_[peer] = std::move(process);
  if (fd < 0) return OnProcessEnd(peer);  // it has ended already
  Register(epoll_.get(), EPOLL_CTL_ADD, fd, kProcess | peer, EPOLLIN);
}

void SocketControl::Attach(int peer, Fd fd) {
  Link& link = links_[peer];
  link.is_unix = IsUnix(fd.get());
  link.stays_inside = StaysInside(fd.get());
  link.fd = std::move(fd);
  Register(epoll_.get(), EPOLL_CTL_ADD, link.fd.get(), peer, EPOLLIN);
}

void SocketControl::Send(int peer, std::string frame) {
  SendWithFd(peer, std::move(frame), nullptr);
}

void SocketControl::SendWithFd(int peer, std::string frame, std::shared_ptr<const Fd> passed) {
  const auto it = links_.find(peer);
  if (it == links_.end()) return;
  Link& link = it->second;
  if (passed != nullptr && link.passes_fds) {
    link.out_fds.emplace_back(link.out.size() - link.out_begin, std::move(passed));
  }
  const uint32_t size = static_cast<uint32_t>(frame.size());
  link.out.append(reinterpret_cast<const char*>(&size), sizeof(size));
  link.out.append(frame);
  Flush(peer, &link);
}

Fd SocketControl::TakeFd(int peer) {
  const auto it = links_.find(peer);
  if (it == links_.end() || it->second.in_fds.empty()) return {};
  Fd fd = std::move(it->second.in_fds.front());
  it->second.in_fds.pop_front();
  return fd;
}

ssize_t SocketControl::Transmit(Link* link) {
  auto& fds = link->out_fds;
  const bool passes = !fds.empty() && fds.front().first == 0;
  size_t size = link->out.size() - link->out_begin;  // up to the next descriptor
  if (fds.size() > (passes ? 1 : 0)) size = fds[passes ? 1 : 0].first;
  iovec part = {link->out.data() + link->out_begin, size};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  Ancillary ancillary = {};
  if (passes) {
    message.msg_control = ancillary.bytes;
    message.msg_controllen = sizeof(ancillary.bytes);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    const int fd = fds.front().second->get();
    std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  }
  const ssize_t n = sendmsg(link->fd.get(), &message, MSG_NOSIGNAL);
  // Too many descriptors of this user are under way.  This frame and all later ones go without:
  // the receiver finds none for them, and says so.
  if (n < 0 && passes && errno == ETOOMANYREFS) {
    HVD_LOG(kWarning) << "cannot pass a descriptor: " << ErrnoText(ETOOMANYREFS)
                      << "; raise the limit on open files (ulimit -n)";
    link->passes_fds = false;
    fds.clear();
    errno = EINTR;
  } else if (n > 0) {
    if (passes) fds.pop_front();
    for (auto& item : fds) item.first -= n;
  }
  return n;
}

void SocketControl::Flush(int peer, Link* link) {
  while (!link->out.empty()) {
    const ssize_t n = Transmit(link);
    if (n > 0) {
      link->out_begin += n;
      // Moving the rest to the front is worth it when it is the smaller part.
      if (link->out_begin > link->out.size() / 2) {
        link->out.erase(0, link->out_begin);
        link->out_begin = 0;
      }
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    } else if (errno != EINTR) {
      // Reading finds out that the peer is gone, after what it still had to say.
      link->out.clear();
      link->out_begin = 0;
      link->out_fds.clear();
    }
  }
  const bool writing = !link->out.empty();
  if (writing != link->writing) {
    link->writing = writing;
    Register(epoll_.get(), EPOLL_CTL_MOD, link->fd.get(), peer,
             EPOLLIN | (writing ? EPOLLOUT : 0u));
  }
}

ControlEvent SocketControl::WaitAny(Deadline deadline) {
  for (;;) {
    if (!events_.empty()) {
      ControlEvent event = std::move(events_.front());
      events_.pop_front();
      if (event.type == ControlEvent::Type::kWake) {
        bell_.Clear();
        wake_pending_ = false;
      }
      return event;
    }
    const bool last = std::exchange(interrupted_, false) || deadline.passed();
    Turn(last ? Deadline(Clock::time_point{}) : deadline);
    if (last && events_.empty()) return {};
  }
}

void SocketControl::Turn(Deadline deadline) {
  if (acceptor_ != nullptr) deadline = Earlier(deadline, acceptor_->deadline());
  epoll_event ready[64];
  const int n = epoll_wait(epoll_.get(), ready, 64, deadline.poll_ms());
  bool step = n == 0;  // a handshake may be past its deadline
  for (int i = 0; i < n; ++i) {
    const uint64_t who = ready[i].data.u64;
    if (who == kBell) {
      // It rings until the event is taken, which stands for all Wake() until then.
      if (!wake_pending_) events_.push_back({ControlEvent::Type::kWake, -1, {}, {}});
      wake_pending_ = true;
      continue;
    }
    if (who == kAcceptor) {
      step = true;
      continue;
    }
    const int peer = static_cast<int>(who & (kProcess - 1));
    if (who & kProcess) {
      OnProcessEnd(peer);
      continue;
    }
    const auto it = links_.find(peer);
    if (it == links_.end()) continue;  // lost by an earlier event of this turn
    if (ready[i].events & EPOLLOUT) Flush(peer, &it->second);
    if (ready[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
      ReadFrom(peer, &it->second, /*to_the_end=*/false);
    }
  }
  if (step && acceptor_ != nullptr) acceptor_->Step();
}

ssize_t SocketControl::Receive(Link* link, void* buffer, size_t size) {
  if (!link->is_unix || !takes_fds_) return recv(link->fd.get(), buffer, size, 0);
  iovec part = {buffer, size};
  Ancillary ancillary;
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = ancillary.bytes;
  message.msg_controllen = sizeof(ancillary.bytes);
  ssize_t n = -1;
  Fd passed = Fd::Make(table_, [&]() -> int {
    n = recvmsg(link->fd.get(), &message, MSG_CMSG_CLOEXEC);
    const cmsghdr* const header = n > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
    if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return -1;
    int fd;
    std::memcpy(&fd, CMSG_DATA(header), sizeof(fd));
    return fd;
  });
  // One that was cut off keeps its place in the order.
  if (passed.valid() || (n > 0 && (message.msg_flags & MSG_CTRUNC))) {
    link->in_fds.push_back(std::move(passed));
  }
  return n;
}

void SocketControl::ReadFrom(int peer, Link* link, bool to_the_end) {
  char buffer[64 << 10];
  for (;;) {
    const ssize_t n = Receive(link, buffer, sizeof(buffer));
    if (n > 0) {
      link->in.append(buffer, n);
      CutFrames(peer, link);
      if (links_.count(peer) == 0) return;
      // Usually there is no more; what comes meanwhile shows in the next turn.
      if (!to_the_end && n < static_cast<ssize_t>(sizeof(buffer))) return;
    } else if (n == 0) {
      return Lose(peer, "its connection was closed");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    } else if (errno != EINTR) {
      return Lose(peer, StrCat("its connection failed: ", ErrnoText(errno)));
    }
  }
}

void SocketControl::OnProcessEnd(int peer) {
  if (const auto it = links_.find(peer); it != links_.end()) {
    ReadFrom(peer, &it->second, /*to_the_end=*/true);
  }
  if (processes_.count(peer) > 0) Lose(peer, "its process ended");
}

void SocketControl::CutFrames(int peer, Link* link) {
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

void SocketControl::Lose(int peer, const std::string& why) {
  // Closing alone leaves it in the epoll set while a child that is being forked holds it, too.
  if (const auto it = links_.find(peer); it != links_.end()) {
    Register(epoll_.get(), EPOLL_CTL_DEL, it->second.fd.get(), 0, 0);
    links_.erase(it);
  }
  if (const auto it = processes_.find(peer); it != processes_.end()) {
    Register(epoll_.get(), EPOLL_CTL_DEL, it->second.get(), 0, 0);
    processes_.erase(it);
  }
  events_.push_back({ControlEvent::Type::kClosed, peer, {}, why});
}

void SocketControl::Finish(Deadline deadline) {
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
    // Nobody asks for events any more, and a bell that rings on would keep this thread busy.
    events_.clear();
    if (std::exchange(wake_pending_, false)) bell_.Clear();
  }
  links_.clear();
  processes_.clear();
}

}  // namespace hvd
