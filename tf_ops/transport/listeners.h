// Listeners: the sockets at which other ranks call this one.

#ifndef TF_OPS_TRANSPORT_LISTENERS_H_
#define TF_OPS_TRANSPORT_LISTENERS_H_

#include "tf_ops/base/fd.h"

namespace hvd {

struct Listeners {
  Fd tcp;
  Fd local;  // a Unix socket; invalid where the system refuses one

  // Forgets the descriptors without closing them.
  void Release() {
    tcp.Release();
    local.Release();
  }
};

}  // namespace hvd

#endif  // TF_OPS_TRANSPORT_LISTENERS_H_
