// What a rank publishes about where it is (World::endpoints), item by item:
//
//   address:port                                 a TCP socket, as often as it has addresses
//   unix:<name>                                  a socket in the abstract Unix namespace
//   process:<boot id>/<pid namespace>/<pid>      which process of which machine it is
//
// The two last mean something on the same machine only, and may be absent.
//
// Threads: pure functions.

#ifndef TF_OPS_TRANSPORT_NET_ENDPOINT_H_
#define TF_OPS_TRANSPORT_NET_ENDPOINT_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace hvd {

inline constexpr char kUnixPrefix[] = "unix:";
inline constexpr char kProcessPrefix[] = "process:";

// The item of this process; empty when /proc does not tell.
std::string OwnProcessItem();

// The name behind "unix:", or empty when `item` is another one.
std::string UnixName(const std::string& item);

// Where to call who published `items`: the Unix socket first, if `same_host`; then TCP.
std::vector<std::string> Callable(const std::vector<std::string>& items, bool same_host);

// The process id of who published `items`, when it has a meaning for who published `own`: the
// same machine since the same boot, the same namespace.  Otherwise 0.
pid_t VisiblePid(const std::vector<std::string>& items, const std::vector<std::string>& own);

}  // namespace hvd

#endif  // TF_OPS_TRANSPORT_NET_ENDPOINT_H_
