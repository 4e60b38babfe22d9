#include "tf_ops/transport/tcp/tcp_plane.h"

#include <string>
#include <utility>
#include <vector>

#include "tf_ops/transport/tcp/mesh.h"
#include "tf_ops/transport/tcp/tcp_transport.h"

namespace hvd {
namespace {

class TcpPlane final : public Plane {
 public:
  TcpPlane(const World& world, FdTable* table, const Stop* stop) : mesh_(world, table, stop) {}

  bool Serves(const std::vector<int>&) const override { return true; }
  std::unique_ptr<Transport> NewTransport(std::vector<int> members) override {
    return std::make_unique<TcpTransport>(&mesh_, std::move(members));
  }
  void Adopt(int peer, Fd fd) override { mesh_.Adopt(peer, std::move(fd)); }
  void SetTrouble(const std::string& trouble) override { mesh_.SetTrouble(trouble); }
  void Abort() override { mesh_.Wake(); }

 private:
  TcpMesh mesh_;
};

}  // namespace

std::unique_ptr<Plane> NewTcpPlane(const World& world, FdTable* table, const Stop* stop) {
  return std::make_unique<TcpPlane>(world, table, stop);
}

}  // namespace hvd
