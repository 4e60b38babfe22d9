#include "tf_ops/transport/net/socket.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <sstream>
#include <utility>

#include "tf_ops/base/strings.h"
#include "tf_ops/transport/net/endpoint.h"

namespace hvd {
namespace {

constexpr int kBacklog = 1024;
constexpr int kType = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;

std::string EndpointText(const sockaddr* address, int port) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text,
              sizeof(text));
    return StrCat(text, ":", port);
  }
  inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text,
            sizeof(text));
  return StrCat("[", text, "]:", port);
}

// The addresses of the interfaces that are up, loopback and link-local ones left out:
// they mean nothing on another host.
void AddInterfaceEndpoints(int port, std::vector<std::string>* endpoints) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return;
  for (const ifaddrs* item = list; item != nullptr; item = item->ifa_next) {
    if (item->ifa_addr == nullptr || !(item->ifa_flags & IFF_UP)) continue;
    if (item->ifa_flags & IFF_LOOPBACK) continue;
    const int family = item->ifa_addr->sa_family;
    if (family == AF_INET6) {
      const auto* v6 = reinterpret_cast<const sockaddr_in6*>(item->ifa_addr);
      if (IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) continue;
    } else if (family != AF_INET) {
      continue;
    }
    endpoints->push_back(EndpointText(item->ifa_addr, port));
  }
  freeifaddrs(list);
}

// Waits until `fd` has one of `events` (or an error).
Status Await(int fd, short events, int stop_fd, Deadline deadline) {
  pollfd fds[2] = {{fd, events, 0}, {stop_fd, POLLIN, 0}};
  for (;;) {
    const int n = poll(fds, stop_fd >= 0 ? 2 : 1, deadline.poll_ms());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Status::Internal(StrCat("poll: ", ErrnoText(errno)));
    if (fds[1].revents != 0) return Status::Cancelled("stopped");
    if (n == 0) return Status::DeadlineExceeded("no answer in time");
    return Status::Ok();
  }
}

void NoDelay(int fd) {
  const int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

// "host:port" or "[v6]:port".
bool SplitEndpoint(const std::string& endpoint, std::string* host, std::string* port) {
  const size_t colon = endpoint.rfind(':');
  if (colon == std::string::npos || colon == 0) return false;
  *host = endpoint.substr(0, colon);
  *port = endpoint.substr(colon + 1);
  if (host->front() == '[' && host->back() == ']') *host = host->substr(1, host->size() - 2);
  return true;
}

// The address of `name` in the abstract namespace, which has no file and ends with its socket.
socklen_t UnixAddress(const std::string& name, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  const size_t n = std::min(name.size(), sizeof(address->sun_path) - 1);
  std::memcpy(address->sun_path + 1, name.data(), n);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + n);
}

Status DialUnix(const std::string& name, FdTable* table, int stop_fd, Deadline deadline, Fd* fd) {
  Fd out = Fd::Make(table, [] { return socket(AF_UNIX, kType, 0); });
  if (!out.valid()) return Status::PeerLost(StrCat("no Unix socket: ", ErrnoText(errno)));
  sockaddr_un address;
  const socklen_t length = UnixAddress(name, &address);
  while (connect(out.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    // EAGAIN: the listener's queue is full, and there is nothing to poll for.
    if (errno != EAGAIN && errno != EINTR) {
      return Status::PeerLost(StrCat(kUnixPrefix, name, ": ", ErrnoText(errno)));
    }
    if (deadline.passed()) return Status::DeadlineExceeded("no answer in time");
    if (Pause(stop_fd, std::chrono::milliseconds(5))) return Status::Cancelled("stopped");
  }
  *fd = std::move(out);
  return Status::Ok();
}

}  // namespace

std::string ErrnoText(int error) {
  char buffer[256] = "";
  const std::string text = strerror_r(error, buffer, sizeof(buffer));
  const bool no_descriptor = error == EMFILE || error == ENFILE;
  return no_descriptor ? text + "; raise the limit on open files (ulimit -n)" : text;
}

Status Listen(bool loopback_only, FdTable* table, Fd* listener,
              std::vector<std::string>* endpoints) {
  // One socket for both families where the machine has IPv6.
  sockaddr_in6 any6 = {};
  any6.sin6_family = AF_INET6;
  any6.sin6_addr = in6addr_any;
  sockaddr_in any4 = {};
  any4.sin_family = AF_INET;
  any4.sin_addr.s_addr = htonl(loopback_only ? INADDR_LOOPBACK : INADDR_ANY);

  Fd fd;
  bool bound = false;
  if (!loopback_only) {
    fd = Fd::Make(table, [] { return socket(AF_INET6, kType, 0); });
    const int off = 0;
    bound = fd.valid() && setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) == 0 &&
            bind(fd.get(), reinterpret_cast<sockaddr*>(&any6), sizeof(any6)) == 0;
  }
  if (!bound) {
    fd = Fd::Make(table, [] { return socket(AF_INET, kType, 0); });
    bound = fd.valid() && bind(fd.get(), reinterpret_cast<sockaddr*>(&any4), sizeof(any4)) == 0;
  }
  if (!bound || listen(fd.get(), kBacklog) != 0) {
    return Status::Internal(StrCat("cannot open a listening socket: ", ErrnoText(errno)));
  }
  sockaddr_storage address = {};
  socklen_t length = sizeof(address);
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length);
  // The port lies at the same place for both families.
  const int port = ntohs(reinterpret_cast<sockaddr_in*>(&address)->sin_port);
  endpoints->clear();
  if (!loopback_only) AddInterfaceEndpoints(port, endpoints);
  if (endpoints->empty()) endpoints->push_back(StrCat("127.0.0.1:", port));
  *listener = std::move(fd);
  return Status::Ok();
}

Fd ListenUnix(FdTable* table, std::string* endpoint) {
  uint64_t random[2];
  if (getrandom(random, sizeof(random), 0) != sizeof(random)) return {};
  std::ostringstream name;
  name << "horovod-" << std::hex << random[0] << random[1];
  sockaddr_un address;
  const socklen_t length = UnixAddress(name.str(), &address);
  Fd fd = Fd::Make(table, [] { return socket(AF_UNIX, kType, 0); });
  if (!fd.valid() || bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(fd.get(), kBacklog) != 0) {
    return {};
  }
  *endpoint = kUnixPrefix + name.str();
  return fd;
}

bool IsUnix(int fd) {
  int domain = 0;
  socklen_t length = sizeof(domain);
  return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == AF_UNIX;
}

bool StaysInside(int fd) {
  if (IsUnix(fd)) return true;
  sockaddr_storage ends[2] = {};
  socklen_t lengths[2] = {sizeof(ends[0]), sizeof(ends[1])};
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&ends[0]), &lengths[0]) != 0 ||
      getpeername(fd, reinterpret_cast<sockaddr*>(&ends[1]), &lengths[1]) != 0) {
    return false;
  }
  return EndpointText(reinterpret_cast<const sockaddr*>(&ends[0]), 0) ==
         EndpointText(reinterpret_cast<const sockaddr*>(&ends[1]), 0);
}

Fd Accept(int listener, FdTable* table) {
  Fd fd = Fd::Make(
      table, [&] { return accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); });
  if (fd.valid()) NoDelay(fd.get());
  return fd;
}

Status Dial(const std::string& endpoint, FdTable* table, int stop_fd, Deadline deadline, Fd* fd) {
  if (const std::string name = UnixName(endpoint); !name.empty()) {
    return DialUnix(name, table, stop_fd, deadline, fd);
  }
  std::string host, port;
  if (!SplitEndpoint(endpoint, &host, &port)) {
    return Status::InvalidArgument(StrCat("'", endpoint, "' is not address:port"));
  }
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
    return Status::InvalidArgument(StrCat("'", endpoint, "': ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  Fd out = Fd::Make(table, [&] { return socket(found->ai_family, kType, 0); });
  if (!out.valid()) return Status::Internal(StrCat("socket: ", ErrnoText(errno)));
  NoDelay(out.get());
  if (connect(out.get(), found->ai_addr, found->ai_addrlen) != 0) {
    if (errno != EINPROGRESS) {
      return Status::PeerLost(StrCat(endpoint, ": ", ErrnoText(errno)));
    }
    HVD_RETURN_IF_ERROR(Await(out.get(), POLLOUT, stop_fd, deadline));
    int error = 0;
    socklen_t length = sizeof(error);
    getsockopt(out.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return Status::PeerLost(StrCat(endpoint, ": ", ErrnoText(error)));
  }
  *fd = std::move(out);
  return Status::Ok();
}

bool Pause(int stop_fd, Clock::duration time) {
  pollfd stop = {stop_fd, POLLIN, 0};
  return poll(&stop, 1, Deadline::After(time).poll_ms()) > 0;
}

Status WriteAll(int fd, ConstBytes out, int stop_fd, Deadline deadline) {
  while (!out.empty()) {
    const ssize_t n = send(fd, out.data, out.size, MSG_NOSIGNAL);
    if (n > 0) {
      out = out.sub(n, out.size - n);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      HVD_RETURN_IF_ERROR(Await(fd, POLLOUT, stop_fd, deadline));
    } else if (errno != EINTR) {
      return Status::PeerLost(ErrnoText(errno));
    }
  }
  return Status::Ok();
}

Status ReadAll(int fd, Bytes in, int stop_fd, Deadline deadline) {
  while (!in.empty()) {
    const ssize_t n = recv(fd, in.data, in.size, 0);
    if (n > 0) {
      in = in.sub(n, in.size - n);
    } else if (n == 0) {
      return Status::PeerLost("the connection was closed");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      HVD_RETURN_IF_ERROR(Await(fd, POLLIN, stop_fd, deadline));
    } else if (errno != EINTR) {
      return Status::PeerLost(ErrnoText(errno));
    }
  }
  return Status::Ok();
}

}  // namespace hvd
