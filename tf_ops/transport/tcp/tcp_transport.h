// SendRecv over the data connections of a TcpMesh.
//
// On the wire a message is a header {number, bytes} and its bytes.

#ifndef TF_OPS_TRANSPORT_TCP_TCP_TRANSPORT_H_
#define TF_OPS_TRANSPORT_TCP_TCP_TRANSPORT_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "tf_ops/transport/tcp/mesh.h"
#include "tf_ops/transport/transport.h"

namespace hvd {

class TcpTransport final : public Transport {
 public:
  // `mesh` outlives this object.  REQUIRES: this rank is among `members`.
  TcpTransport(TcpMesh* mesh, std::vector<int> members);

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  uint64_t moved() const override { return moved_; }
  Status SendRecv(const SendRecvArgs& args) override;

 private:
  Status Transfer(const SendRecvArgs& args);

  TcpMesh* const mesh_;
  const std::vector<int> members_;
  int rank_ = 0;
  std::atomic<uint64_t> moved_{0};
  Status failed_;
};

}  // namespace hvd

#endif  // TF_OPS_TRANSPORT_TCP_TCP_TRANSPORT_H_
