// Sockets: listening, calling, and whole fixed-size messages with a deadline.
//
// Every descriptor is close-on-exec, non-blocking and entered in the FdTable.

#ifndef TF_OPS_TRANSPORT_NET_SOCKET_H_
#define TF_OPS_TRANSPORT_NET_SOCKET_H_

#include <string>
#include <vector>

#include "tf_ops/base/bytes.h"
#include "tf_ops/base/deadline.h"
#include "tf_ops/base/fd.h"
#include "tf_ops/base/status.h"

namespace hvd {

// A listening TCP socket on a port the system chose.  `loopback_only`: reachable from this
// host alone.  `endpoints`: each "address:port" at which others may call it.
Status Listen(bool loopback_only, FdTable* table, Fd* listener,
              std::vector<std::string>* endpoints);

// A listening Unix socket, and its item "unix:<name>"; invalid where the system refuses.
Fd ListenUnix(FdTable* table, std::string* endpoint);

// Whether `fd` is a Unix socket, which can carry descriptors.
bool IsUnix(int fd);

// Whether no network lies between the ends of a connection: a Unix socket, or both ends have
// one address.
bool StaysInside(int fd);

// The next connection waiting at `listener`, or an invalid Fd when there is none.
Fd Accept(int listener, FdTable* table);

// A connection to "address:port" or "unix:<name>".  PeerLost: nothing answers there; Internal:
// this process cannot call at all.  A readable `stop_fd` ends the wait with Cancelled.
Status Dial(const std::string& endpoint, FdTable* table, int stop_fd, Deadline deadline, Fd* fd);

// Waits for `time`; true when `stop_fd` became readable.
bool Pause(int stop_fd, Clock::duration time);

// The whole of `out`, or all of `in`.  PeerLost when the connection ends, Cancelled when
// `stop_fd` becomes readable.
Status WriteAll(int fd, ConstBytes out, int stop_fd, Deadline deadline);
Status ReadAll(int fd, Bytes in, int stop_fd, Deadline deadline);

// "Connection reset by peer", for `error` as errno has it; and what to do, where that is known.
std::string ErrnoText(int error);

}  // namespace hvd

#endif  // TF_OPS_TRANSPORT_NET_SOCKET_H_
