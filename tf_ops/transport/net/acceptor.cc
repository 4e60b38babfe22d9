#include "tf_ops/transport/net/acceptor.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <iterator>
#include <utility>

#include "tf_ops/base/log.h"
#include "tf_ops/base/strings.h"
#include "tf_ops/transport/net/socket.h"

namespace hvd {
namespace {

void Watch(int epoll, int fd) {
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.fd = fd;
  epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

void Unwatch(int epoll, int fd) { epoll_ctl(epoll, EPOLL_CTL_DEL, fd, nullptr); }

bool SomebodyWaits(int listener) {
  pollfd ready = {listener, POLLIN, 0};
  return poll(&ready, 1, 0) > 0;
}

}  // namespace

Acceptor::Acceptor(const World& world, Listeners listeners, FdTable* table, OnPeer on_peer,
                   OnTrouble on_trouble)
    : world_(world),
      table_(table),
      on_peer_(std::move(on_peer)),
      on_trouble_(std::move(on_trouble)),
      listeners_(std::move(listeners)),
      epoll_(Fd::Make(table, [] { return epoll_create1(EPOLL_CLOEXEC); })) {
  WatchListeners(true);
}

void Acceptor::WatchListeners(bool on) {
  if (on == watching_) return;
  watching_ = on;
  for (const Fd* listener : {&listeners_.tcp, &listeners_.local}) {
    if (!listener->valid()) continue;
    if (on) {
      Watch(epoll_.get(), listener->get());
    } else {
      Unwatch(epoll_.get(), listener->get());
    }
  }
}

Deadline Acceptor::deadline() const {
  Deadline first = paused_until_;
  for (const auto& item : pending_) first = Earlier(first, EndOf(item.second));
  return first;
}

Deadline Acceptor::EndOf(const Pending& pending) const {
  return crowded() ? Deadline(pending.deadline.at() - kHandshakeTime + kCrowdedTime)
                   : pending.deadline;
}

void Acceptor::Step() {
  epoll_event events[64];
  const int n = epoll_wait(epoll_.get(), events, 64, 0);
  for (int i = 0; i < n; ++i) {
    const int fd = events[i].data.fd;
    if (fd == listeners_.tcp.get() || fd == listeners_.local.get()) {
      AcceptAll(fd);
    } else if (auto it = pending_.find(fd); it != pending_.end() && Advance(&it->second)) {
      Drop(it);
    }
  }
  for (auto it = pending_.begin(); it != pending_.end();) {
    it = EndOf(it->second).passed() ? Drop(it) : std::next(it);
  }
  if (paused_until_.passed()) paused_until_ = Deadline::Never();
  WatchListeners(!crowded() && paused_until_.never());
}

// Closing alone leaves it in the epoll set while a child that is being forked holds it, too.
Acceptor::PendingMap::iterator Acceptor::Drop(PendingMap::iterator pending) {
  if (pending->second.fd.valid()) Unwatch(epoll_.get(), pending->first);
  return pending_.erase(pending);
}

void Acceptor::AcceptAll(int listener) {
  while (!crowded()) {
    Fd fd = Accept(listener, table_);
    if (!fd.valid()) {
      const int error = errno;
      const bool short_of =
          error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
      // accept(2) wants a descriptor before it looks whether anybody is there.
      if (!short_of || !SomebodyWaits(listener)) return SetTrouble({});
      // The connection stays in the queue, and an ever-readable listener must not keep this
      // thread busy.
      SetTrouble(StrCat("cannot accept a connection: ", ErrnoText(error)));
      HVD_LOG(kWarning) << trouble_;
      paused_until_ = Deadline::After(kPause);
      return;
    }
    SetTrouble({});
    Pending pending;
    pending.challenge = NewChallenge();
    pending.deadline = Deadline::After(kHandshakeTime);
    // 40 bytes fit in the buffer of a new socket; a peer that is gone fails later.
    (void)WriteAll(fd.get(), {&pending.challenge, sizeof(pending.challenge)}, -1,
                   Deadline::After(std::chrono::seconds(0)));
    const int number = fd.get();
    pending.fd = std::move(fd);
    Watch(epoll_.get(), number);
    pending_[number] = std::move(pending);
  }
}

void Acceptor::SetTrouble(const std::string& trouble) {
  if (trouble == trouble_) return;
  trouble_ = trouble;
  if (on_trouble_) on_trouble_(trouble_);
}

bool Acceptor::Advance(Pending* pending) {
  char* const into = reinterpret_cast<char*>(&pending->claim) + pending->got;
  const ssize_t n = recv(pending->fd.get(), into, sizeof(Claim) - pending->got, 0);
  if (n < 0) return errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR;
  if (n == 0) return true;
  pending->got += n;
  if (pending->got < sizeof(Claim)) return false;

  Proof proof;
  Status status = CheckClaim(world_, pending->challenge, pending->claim, &proof);
  if (status.ok()) {
    status = WriteAll(pending->fd.get(), {&proof, sizeof(proof)}, -1,
                      Deadline::After(std::chrono::seconds(0)));
  }
  if (!status.ok()) {
    HVD_LOG(kInfo) << "turned a connection away: " << status.message();
    return true;
  }
  Unwatch(epoll_.get(), pending->fd.get());
  on_peer_(static_cast<Channel>(pending->claim.channel), pending->claim.caller,
           std::move(pending->fd));
  return true;
}

}  // namespace hvd
