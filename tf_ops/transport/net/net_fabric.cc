#include "tf_ops/transport/net/net_fabric.h"

#include <string>
#include <utility>

#include "tf_ops/base/log.h"
#include "tf_ops/transport/net/acceptor.h"
#include "tf_ops/transport/net/socket_control.h"
#include "tf_ops/transport/net/tree_start.h"
#include "tf_ops/transport/topology.h"

namespace hvd {
namespace {

class NetFabric final : public Fabric {
 public:
  NetFabric(World world, Listeners listeners, FdTable* table, const MakePlanes& make_planes)
      : world_(std::move(world)),
        stop_(table),
        planes_(make_planes(world_, table, &stop_)),
        acceptor_(
            world_, std::move(listeners), table,
            [this](Channel channel, int peer, Fd fd) { OnPeer(channel, peer, std::move(fd)); },
            [this](const std::string& trouble) { planes_.list.back()->SetTrouble(trouble); }),
        control_(table, &acceptor_),
        start_({&world_, table, &stop_, &acceptor_, &control_, planes_.memory,
                planes_.memory_required, planes_.unix_sockets}) {}

  Status Start(Deadline deadline) override {
    HVD_RETURN_IF_ERROR(StartCrypto());
    if (!stop_.valid() || !acceptor_.valid() || !control_.valid() || !start_.valid()) {
      return Status::Internal("no descriptor is left; raise the limit on open files (ulimit -n)");
    }
    HVD_RETURN_IF_ERROR(start_.Run(deadline));
    const std::vector<int> host = Topology(world_.hosts).host(world_.rank);
    const bool shared =
        host.size() > 1 && planes_.list.front()->Serves(host) && planes_.memory != nullptr;
    HVD_LOG(kInfo) << "generation " << world_.generation << ": " << world_.RankText(world_.rank)
                   << " of " << world_.size << ", " << host.size() << " on its host, by "
                   << (shared ? "shared memory there and TCP elsewhere" : "TCP");
    return Status::Ok();
  }

  ControlChannel& control() override { return control_; }

  std::unique_ptr<Transport> NewTransport(std::vector<int> members) override {
    Plane* plane = nullptr;
    for (const auto& candidate : planes_.list) {
      plane = candidate.get();
      if (plane->Serves(members)) break;
    }
    return plane->NewTransport(std::move(members));
  }

  void Abort(const Status& why) override {
    stop_.Set(why);
    for (const auto& plane : planes_.list) plane->Abort();
    control_.Wake();  // Start() may be waiting there
  }

 private:
  void OnPeer(Channel channel, int peer, Fd fd) {
    if (channel == Channel::kControl) return start_.OnPeer(peer, std::move(fd));
    planes_.list.back()->Adopt(peer, std::move(fd));
  }

  const World world_;
  Stop stop_;
  const Planes planes_;
  Acceptor acceptor_;
  SocketControl control_;
  TreeStart start_;
};

}  // namespace

std::unique_ptr<Fabric> NewNetFabric(World world, Listeners listeners, FdTable* table,
                                     const MakePlanes& make_planes) {
  return std::make_unique<NetFabric>(std::move(world), std::move(listeners), table, make_planes);
}

}  // namespace hvd
