#include "tf_ops/transport/tcp/tcp_fabric.h"

#include <utility>

#include "tf_ops/base/log.h"
#include "tf_ops/transport/tcp/acceptor.h"
#include "tf_ops/transport/tcp/caller.h"
#include "tf_ops/transport/tcp/mesh.h"
#include "tf_ops/transport/tcp/tcp_control.h"
#include "tf_ops/transport/tcp/tcp_transport.h"

namespace hvd {
namespace {

// Start() waits in slices, since Abort() does not ring the control channel.
constexpr auto kSlice = std::chrono::milliseconds(100);

class TcpFabric final : public Fabric {
 public:
  TcpFabric(World world, Fd listener, FdTable* table)
      : world_(std::move(world)),
        table_(table),
        mesh_(world_, table),
        acceptor_(
            world_, std::move(listener), table,
            [this](Channel channel, int peer, Fd fd) { OnPeer(channel, peer, std::move(fd)); }),
        control_(table, &acceptor_) {}

  Status Start(Deadline deadline) override {
    HVD_RETURN_IF_ERROR(StartCrypto());
    if (!mesh_.valid() || !acceptor_.valid() || !control_.valid()) {
      return Status::Internal("no descriptor is left; raise the limit on open files (ulimit -n)");
    }
    if (world_.rank != 0) {
      Fd fd;
      const Status status =
          CallPeer(world_, 0, Channel::kControl, table_, mesh_.stop_fd(), deadline, &fd);
      if (status.code() == Code::kCancelled) return mesh_.abort_reason();
      HVD_RETURN_IF_ERROR(status);
      control_.Attach(0, std::move(fd));
      return AwaitWelcome(deadline);
    }
    while (!Missing().empty()) {
      HVD_RETURN_IF_ERROR(mesh_.abort_reason());
      if (deadline.passed()) {
        return Status::DeadlineExceeded(
            StrCat(RanksText(Missing()), " of ", world_.size, " did not connect to rank 0"));
      }
      const ControlEvent event = control_.WaitAny(Earlier(deadline, Deadline::After(kSlice)));
      if (event.type == ControlEvent::Type::kClosed) {
        return Status::PeerLost(
            StrCat(world_.RankText(event.peer), " left during init(): ", event.text));
      }
    }
    for (int r = 1; r < world_.size; ++r) control_.Send(r, "welcome");
    return Status::Ok();
  }

  ControlChannel& control() override { return control_; }

  std::unique_ptr<Transport> NewTransport(std::vector<int> members) override {
    return std::make_unique<TcpTransport>(&mesh_, std::move(members));
  }

  void Abort(const Status& why) override { mesh_.Abort(why); }

 private:
  // No rank says anything before all are there, so rank 0 need not keep early frames.
  Status AwaitWelcome(Deadline deadline) {
    for (;;) {
      const ControlEvent event = control_.WaitAny(Earlier(deadline, Deadline::After(kSlice)));
      if (event.type == ControlEvent::Type::kFrame) return Status::Ok();
      if (event.type == ControlEvent::Type::kClosed) {
        return Status::PeerLost(
            StrCat(world_.RankText(event.peer), " left during init(): ", event.text));
      }
      HVD_RETURN_IF_ERROR(mesh_.abort_reason());
      if (deadline.passed()) {
        return Status::DeadlineExceeded("rank 0 did not hear from all ranks in time");
      }
    }
  }

  std::vector<int> Missing() const {
    std::vector<int> missing;
    for (int r = 1; r < world_.size; ++r) {
      if (!control_.attached(r)) missing.push_back(r);
    }
    return missing;
  }

  void OnPeer(Channel channel, int peer, Fd fd) {
    if (channel == Channel::kData) {
      mesh_.Adopt(peer, std::move(fd));
    } else if (world_.rank == 0 && !control_.attached(peer)) {
      control_.Attach(peer, std::move(fd));
    } else {
      HVD_LOG(kWarning) << "rank " << peer << " opened a second control connection; dropped";
    }
  }

  const World world_;
  FdTable* const table_;
  TcpMesh mesh_;
  Acceptor acceptor_;
  TcpControl control_;
};

}  // namespace

std::unique_ptr<Fabric> NewTcpFabric(World world, Fd listener, FdTable* table) {
  return std::make_unique<TcpFabric>(std::move(world), std::move(listener), table);
}

}  // namespace hvd
