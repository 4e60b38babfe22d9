#include "tf_ops/transport/local/local_fabric.h"

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <utility>

#include "tf_ops/base/strings.h"
#include "tf_ops/transport/topology.h"

namespace hvd {

// One lock and one condition for all ranks: simple, and fast enough for its two uses.
class LocalHub {
 public:
  explicit LocalHub(const std::vector<std::string>& hosts)
      : size(static_cast<int>(hosts.size())), topology(hosts), ranks(size), mail(size * size) {}

  struct Rank {
    std::deque<ControlEvent> events;
    bool wake = false;
    bool gone = false;
    Status aborted;  // not ok: Abort() was called
  };
  // The message in flight from one rank to another.  The receiver copies from the
  // sender's own memory, under the lock, so a sender that gives up can take it back.
  struct Slot {
    const std::byte* data = nullptr;
    size_t size = 0;
    bool full = false;
  };
  Slot& slot(int from, int to) { return mail[from * size + to]; }

  // Waits until `ready` holds; false: the deadline passed.
  template <typename Ready>
  bool Wait(std::unique_lock<std::mutex>& lock, Deadline deadline, Ready ready) {
    if (deadline.never()) {
      changed.wait(lock, ready);
      return true;
    }
    return changed.wait_until(lock, deadline.at(), ready);
  }

  const int size;
  const Topology topology;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Rank> ranks;
  std::vector<Slot> mail;
};

namespace {

class LocalControl final : public ControlChannel {
 public:
  LocalControl(LocalHub* hub, int rank) : hub_(hub), rank_(rank) {}

  void Send(int peer, std::string frame) override {
    std::lock_guard<std::mutex> lock(hub_->mutex);
    if (hub_->ranks[peer].gone) return;
    hub_->ranks[peer].events.push_back({ControlEvent::Type::kFrame, rank_, std::move(frame), {}});
    hub_->changed.notify_all();
  }

  ControlEvent WaitAny(Deadline deadline) override {
    std::unique_lock<std::mutex> lock(hub_->mutex);
    LocalHub::Rank& me = hub_->ranks[rank_];
    hub_->Wait(lock, deadline, [&] { return me.wake || !me.events.empty(); });
    if (me.wake) {
      me.wake = false;
      return {ControlEvent::Type::kWake, rank_, {}, {}};
    }
    if (me.events.empty()) return {};
    ControlEvent event = std::move(me.events.front());
    me.events.pop_front();
    return event;
  }

  void Wake() override {
    std::lock_guard<std::mutex> lock(hub_->mutex);
    hub_->ranks[rank_].wake = true;
    hub_->changed.notify_all();
  }

  bool Watches(int) const override { return true; }

  void Finish(Deadline) override {}

 private:
  LocalHub* const hub_;
  const int rank_;
};

class LocalTransport final : public Transport {
 public:
  LocalTransport(LocalHub* hub, int global_rank, std::vector<int> members)
      : hub_(hub), global_rank_(global_rank), members_(std::move(members)) {
    while (members_[rank_] != global_rank_) ++rank_;
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  uint64_t moved() const override { return moved_; }

  Status SendRecv(const SendRecvArgs& args) override {
    std::unique_lock<std::mutex> lock(hub_->mutex);
    if (failed_.ok()) failed_ = hub_->ranks[global_rank_].aborted;
    if (failed_.ok()) failed_ = Transfer(lock, args);
    ++moved_;
    return failed_;
  }

 private:
  Status Transfer(std::unique_lock<std::mutex>& lock, const SendRecvArgs& args) {
    LocalHub::Slot* out = nullptr;
    const int to = args.to < 0 ? -1 : members_[args.to];
    const int from = args.from < 0 ? -1 : members_[args.from];
    Status status;
    if (to >= 0) {
      out = &hub_->slot(global_rank_, to);
      *out = {args.out.data, args.out.size, true};
      hub_->changed.notify_all();
    }
    if (from >= 0) {
      LocalHub::Slot& in = hub_->slot(from, global_rank_);
      status = Await(lock, from, args.deadline, [&] { return in.full; });
      if (status.ok() && in.size != args.in.size) {
        status = Status::Internal(StrCat("rank ", from, " sent ", in.size, " bytes where rank ",
                                         global_rank_, " expects ", args.in.size));
      } else if (status.ok()) {
        if (in.size > 0) std::memcpy(args.in.data, in.data, in.size);
        in.full = false;
        hub_->changed.notify_all();
      }
    }
    if (to >= 0) {
      if (status.ok()) status = Await(lock, to, args.deadline, [&] { return !out->full; });
      out->full = false;
    }
    return status;
  }

  template <typename Ready>
  Status Await(std::unique_lock<std::mutex>& lock, int peer, Deadline deadline, Ready ready) {
    const LocalHub::Rank& me = hub_->ranks[global_rank_];
    const LocalHub::Rank& other = hub_->ranks[peer];
    const auto over = [&] { return !me.aborted.ok() || other.gone; };
    if (!hub_->Wait(lock, deadline, [&] { return ready() || over(); })) {
      return Status::DeadlineExceeded(StrCat("rank ", peer, " did not answer in time"));
    }
    if (!me.aborted.ok()) return me.aborted;
    if (ready()) return Status::Ok();
    return Status::PeerLost(StrCat("rank ", peer, " is gone"));
  }

  LocalHub* const hub_;
  const int global_rank_;
  const std::vector<int> members_;
  int rank_ = 0;
  std::atomic<uint64_t> moved_{0};
  Status failed_;
};

class LocalFabric final : public Fabric {
 public:
  LocalFabric(std::shared_ptr<LocalHub> hub, int rank)
      : hub_(std::move(hub)), rank_(rank), control_(hub_.get(), rank) {}

  ~LocalFabric() override {
    std::lock_guard<std::mutex> lock(hub_->mutex);
    hub_->ranks[rank_].gone = true;
    for (int peer : hub_->topology.neighbors(rank_)) {
      hub_->ranks[peer].events.push_back(
          {ControlEvent::Type::kClosed, rank_, {}, "its thread ended"});
    }
    hub_->changed.notify_all();
  }

  Status Start(Deadline) override { return Status::Ok(); }
  ControlChannel& control() override { return control_; }
  std::unique_ptr<Transport> NewTransport(std::vector<int> members) override {
    return std::make_unique<LocalTransport>(hub_.get(), rank_, std::move(members));
  }
  void Abort(const Status& why) override {
    std::lock_guard<std::mutex> lock(hub_->mutex);
    if (hub_->ranks[rank_].aborted.ok()) hub_->ranks[rank_].aborted = why;
    hub_->changed.notify_all();
  }

 private:
  const std::shared_ptr<LocalHub> hub_;
  const int rank_;
  LocalControl control_;
};

}  // namespace

std::shared_ptr<LocalHub> NewLocalHub(std::vector<std::string> hosts) {
  return std::make_shared<LocalHub>(hosts);
}

std::unique_ptr<Fabric> NewLocalFabric(std::shared_ptr<LocalHub> hub, int rank) {
  return std::make_unique<LocalFabric>(std::move(hub), rank);
}

}  // namespace hvd
