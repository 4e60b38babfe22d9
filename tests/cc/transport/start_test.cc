// How ranks come together: who is missing, who left, and what becomes of shared memory.

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <thread>

#include "tests/cc/transport/fabrics.h"
#include "tf_ops/base/strings.h"
#include "tf_ops/transport/net/caller.h"
#include "tf_ops/transport/net/endpoint.h"
#include "tf_ops/transport/net/net_fabric.h"
#include "tf_ops/transport/net/socket.h"
#include "tf_ops/transport/registry.h"
#include "tf_ops/transport/shm/shm_plane.h"
#include "tf_ops/transport/tcp/tcp_plane.h"

namespace hvd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// For a start that fails: by then all that are present have come, on a loaded machine too.
constexpr auto kPresentHaveCome = seconds(4);

class StartTest : public testing::Test {
 protected:
  void Declare(const std::vector<std::string>& hosts) {
    worlds_ = WorldsOf(static_cast<int>(hosts.size()), &table_, &listeners_);
    for (World& world : worlds_) world.hosts = hosts;
    fabrics_.clear();
    fabrics_.resize(hosts.size());
  }

  // Takes the items with `prefix` out of what `rank` published.
  void Hide(int rank, const std::string& prefix) {
    for (World& world : worlds_) {
      auto& items = world.endpoints[rank];
      items.erase(std::remove_if(items.begin(), items.end(),
                                 [&](const auto& item) { return item.rfind(prefix, 0) == 0; }),
                  items.end());
    }
  }

  // Lets `rank` have published process `pid` as its own.
  void SayProcess(int rank, pid_t pid) {
    Hide(rank, "process:");
    std::string item = OwnProcessItem();
    item = item.substr(0, item.rfind('/') + 1) + std::to_string(pid);
    for (World& world : worlds_) world.endpoints[rank].push_back(item);
  }

  // Starts `ranks` at once, and does `meanwhile`; the outcome of each rank.
  std::vector<Status> Start(const std::vector<int>& ranks, const std::string& transport,
                            milliseconds patience, const std::function<void()>& meanwhile) {
    std::vector<Status> outcomes(worlds_.size());
    std::vector<std::thread> threads;
    testing::internal::CaptureStderr();
    for (int r : ranks) {
      fabrics_[r] = NewNetFabric(worlds_[r], std::move(listeners_[r]), &table_,
                                 [&](const World& world, FdTable* table, const Stop* stop) {
                                   Planes planes;
                                   if (transport != "tcp") {
                                     // Rank 1 alone is refused, where anyone is.
                                     auto shm = std::make_unique<ShmPlane>(
                                         world, 4096, Clock::duration{}, table, stop,
                                         r == 1 ? make_memory_ : MakeMemfd);
                                     planes.memory = shm.get();
                                     planes.memory_required = transport == "shm";
                                     planes.list.push_back(std::move(shm));
                                   }
                                   planes.list.push_back(NewTcpPlane(world, table, stop));
                                   return planes;
                                 });
    }
    for (int r : ranks) {
      threads.emplace_back([&, r] { outcomes[r] = fabrics_[r]->Start(Deadline::After(patience)); });
    }
    meanwhile();
    for (std::thread& thread : threads) thread.join();
    log_ = testing::internal::GetCapturedStderr();
    return outcomes;
  }

  bool IsShared(int rank, const std::vector<int>& members) {
    return fabrics_[rank]->NewTransport(members)->IsNative(Kind::kAllreduce);
  }

  int Count(const std::string& text) const {
    int n = 0;
    for (size_t at = 0; (at = log_.find(text, at)) != std::string::npos; ++at) ++n;
    return n;
  }

  static bool Has(const Status& status, const std::string& text) {
    return status.message().find(text) != std::string::npos;
  }

  FdTable table_;
  std::vector<Listeners> listeners_;
  std::vector<World> worlds_;
  std::vector<std::unique_ptr<Fabric>> fabrics_;
  MakeMemory make_memory_ = MakeMemfd;  // of rank 1
  std::string log_;                     // what the ranks wrote to stderr
};

TEST_F(StartTest, Rank0NamesTheMissingAnywhereInTheTree) {
  Declare({"a", "a", "b", "b", "b", "c"});
  const auto outcomes = Start({0, 1, 2, 3}, "auto", kPresentHaveCome, [] {});
  for (int r : {0, 1, 2, 3}) {
    EXPECT_EQ(outcomes[r].code(), Code::kDeadlineExceeded) << outcomes[r];
  }
  EXPECT_TRUE(Has(outcomes[0], "ranks 4, 5 of 6")) << outcomes[0];
  // The leader of b knows of its own host; unless rank 0 told it of all first.
  EXPECT_TRUE(Has(outcomes[2], "rank 4 of 6") || Has(outcomes[2], "ranks 4, 5")) << outcomes[2];
}

TEST_F(StartTest, WhoseParentIsMissingNamesIt) {
  Declare({"a", "b", "b"});
  const auto outcomes = Start({1, 2}, "auto", kPresentHaveCome, [] {});
  EXPECT_EQ(outcomes[1].code(), Code::kDeadlineExceeded) << outcomes[1];
  EXPECT_TRUE(Has(outcomes[1], "rank 0 (host a)")) << outcomes[1];
  EXPECT_FALSE(outcomes[2].ok());
}

TEST_F(StartTest, WhoLeavesIsNamedEverywhere) {
  Declare({"a", "a", "b", "b"});
  const auto outcomes = Start({0, 1, 2}, "auto", seconds(20), [&] {
    Fd fd;  // rank 3 comes, and goes
    Doorbell bell(&table_);
    const Status status =
        CallPeer(worlds_[3], 2, Callable(worlds_[3].endpoints[2], true), Channel::kControl, &table_,
                 bell.fd(), Deadline::After(seconds(20)), &fd);
    EXPECT_TRUE(status.ok()) << status;
  });
  for (int r : {0, 1, 2}) {
    EXPECT_EQ(outcomes[r].code(), Code::kPeerLost) << outcomes[r];
    EXPECT_TRUE(Has(outcomes[r], "rank 3 (host b) left during init()")) << outcomes[r];
  }
}

// Rank 1 has died since it published where it is: nobody waits for it.
TEST_F(StartTest, WhoDiedBeforeItCameIsNamedAtOnce) {
  Declare({"a", "a", "a"});
  const pid_t child = fork();
  if (child == 0) _exit(0);
  SayProcess(1, child);
  const auto outcomes = Start({0, 2}, "auto", seconds(20), [] {});
  for (int r : {0, 2}) {
    EXPECT_EQ(outcomes[r].code(), Code::kPeerLost) << outcomes[r];
    EXPECT_TRUE(Has(outcomes[r], "rank 1 (host a) left during init(): its process ended"))
        << outcomes[r];
  }
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

// Rank 0 knows at once that rank 1 has died, and stays for a moment to tell rank 2.  A machine
// that stands still for that long has further attempts.
TEST_F(StartTest, WhoComesLateIsStillTold) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  Status late;
  for (int attempt = 0; attempt < 5 && !Has(late, "rank 1 (host a) left"); ++attempt) {
    Declare({"a", "a", "a"});
    SayProcess(1, child);
    const auto outcomes = Start({0}, "tcp", seconds(20), [&] {
      std::this_thread::sleep_for(milliseconds(500));
      std::unique_ptr<Fabric> fabric;
      ASSERT_TRUE(
          NewFabric({"tcp", 4096}, worlds_[2], std::move(listeners_[2]), &table_, &fabric).ok());
      late = fabric->Start(Deadline::After(seconds(3)));
    });
    EXPECT_TRUE(Has(outcomes[0], "rank 1 (host a) left during init()")) << outcomes[0];
  }
  EXPECT_EQ(late.code(), Code::kPeerLost) << late;
  EXPECT_TRUE(Has(late, "rank 1 (host a) left during init(): its process ended")) << late;
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

// A stack that no address space holds stands for a limit that is reached.
TEST_F(StartTest, WithoutAThreadItNamesTheLimit) {
  Declare({"a", "b"});
  pthread_attr_t usual, huge;
  ASSERT_EQ(pthread_getattr_default_np(&usual), 0);
  ASSERT_EQ(pthread_attr_init(&huge), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&huge, size_t{1} << 50), 0);
  std::unique_ptr<Fabric> fabric;
  ASSERT_TRUE(
      NewFabric({"tcp", 4096}, worlds_[1], std::move(listeners_[1]), &table_, &fabric).ok());
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);
  const Status status = fabric->Start(Deadline::After(seconds(20)));
  ASSERT_EQ(pthread_setattr_default_np(&usual), 0);
  EXPECT_EQ(status.code(), Code::kInternal) << status;
  EXPECT_TRUE(Has(status, "ulimit -u")) << status;
  EXPECT_EQ(pthread_attr_destroy(&usual), 0);
  EXPECT_EQ(pthread_attr_destroy(&huge), 0);
}

TEST_F(StartTest, AnAbortEndsIt) {
  Declare({"a", "a", "a"});
  const auto outcomes = Start({0, 1}, "auto", seconds(20), [&] {
    std::this_thread::sleep_for(milliseconds(50));
    for (int r : {0, 1}) fabrics_[r]->Abort(Status::Shutdown("enough"));
  });
  for (int r : {0, 1}) EXPECT_EQ(outcomes[r].code(), Code::kShutdown) << outcomes[r];
}

TEST_F(StartTest, MemoryIsSharedInsideHostsOnly) {
  Declare({"a", "a", "b", "b"});
  for (const Status& outcome : Start({0, 1, 2, 3}, "auto", seconds(20), [] {})) {
    EXPECT_TRUE(outcome.ok()) << outcome;
  }
  EXPECT_EQ(log_, "");
  EXPECT_TRUE(IsShared(0, {0, 1}));
  EXPECT_TRUE(IsShared(3, {2, 3}));
  EXPECT_TRUE(IsShared(3, {3}));
  EXPECT_FALSE(IsShared(0, {0, 1, 2, 3}));
  EXPECT_FALSE(IsShared(1, {1, 2}));
}

// Each case: what stands against shared memory at rank 1, and what the one line then says.
class RefusalTest : public StartTest, public testing::WithParamInterface<int> {
 protected:
  std::vector<Status> StartWithRefusal(const std::string& transport) {
    switch (GetParam()) {
      case 0:
        reason_ = "rank 1: no memfd";
        make_memory_ = [](size_t) {
          errno = EPERM;
          return -1;
        };
        break;
      case 1:
        reason_ = "No space left on device";
        make_memory_ = [](size_t) {
          errno = ENOSPC;
          return -1;
        };
        break;
      case 2:
        reason_ = "rank 0 cannot use the part of rank 1: its size is not sealed";
        make_memory_ = [](size_t bytes) {
          const int fd = memfd_create("test", MFD_CLOEXEC);
          EXPECT_EQ(ftruncate(fd, static_cast<off_t>(bytes)), 0);
          return fd;
        };
        break;
      case 3:
        reason_ = "cannot reach rank 0 by a Unix socket";
        Hide(0, "unix:");
        break;
      case 4:  // another machine of the same name: nobody listens by that name here
        reason_ = "cannot reach rank 0 by a Unix socket";
        Hide(0, "unix:");
        Hide(0, "process:");
        for (World& world : worlds_) {
          world.endpoints[0].push_back("unix:horovod-nobody");
          world.endpoints[0].push_back("process:another-boot/1/1");
        }
        break;
    }
    return Start({0, 1, 2}, transport, seconds(20), [] {});
  }
  std::string reason_;
};

TEST_P(RefusalTest, AutoFallsBackToTcpWithOneLine) {
  Declare({"here", "here", "here"});
  for (const Status& outcome : StartWithRefusal("auto")) EXPECT_TRUE(outcome.ok()) << outcome;
  EXPECT_EQ(Count("shared memory is not usable on host here: "), 1) << log_;
  EXPECT_EQ(Count(reason_), 1) << log_;
  EXPECT_EQ(Count("using TCP inside it"), 1) << log_;
  for (int r : {0, 1, 2}) EXPECT_FALSE(IsShared(r, {0, 1, 2}));
}

TEST_P(RefusalTest, ShmFailsOnAllRanks) {
  Declare({"here", "here", "here"});
  for (const Status& outcome : StartWithRefusal("shm")) {
    EXPECT_EQ(outcome.code(), Code::kFailedPrecondition) << outcome;
    EXPECT_TRUE(Has(outcome, "HOROVOD_TRANSPORT=shm")) << outcome;
    EXPECT_TRUE(Has(outcome, reason_)) << outcome;
  }
}

INSTANTIATE_TEST_SUITE_P(Reasons, RefusalTest, testing::Range(0, 5));

TEST_F(StartTest, AStrangerAtTheUnixSocketIsTurnedAway) {
  Declare({"here", "here"});
  std::string unix_item;
  for (const std::string& item : worlds_[0].endpoints[0]) {
    if (!UnixName(item).empty()) unix_item = item;
  }
  ASSERT_FALSE(unix_item.empty());
  Fd silent, loud;
  for (Fd* fd : {&silent, &loud}) {
    ASSERT_TRUE(Dial(unix_item, &table_, -1, Deadline::After(seconds(5)), fd).ok());
  }
  const std::string noise(1000, 'x');
  ASSERT_TRUE(WriteAll(loud.get(), {noise.data(), noise.size()}, -1, {}).ok());
  for (const Status& outcome : Start({0, 1}, "auto", seconds(20), [] {})) {
    EXPECT_TRUE(outcome.ok()) << outcome;
  }
  EXPECT_TRUE(IsShared(0, {0, 1}));
}

TEST_F(StartTest, ShmRefusesSeveralHostsAndNamesThem) {
  Declare({"node7", "node9"});
  std::unique_ptr<Fabric> fabric;
  const Status status =
      NewFabric({"shm", 4096}, worlds_[0], std::move(listeners_[0]), &table_, &fabric);
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << status;
  EXPECT_TRUE(Has(status, "node7, node9")) << status;
}

// The limit is lowered to what is open, and a few more.
TEST_F(StartTest, WithoutDescriptorsItWorksOrNamesTheLimit) {
  for (int more : {0, 2, 4, 6, 8, 10, 12, 14, 16, 20, 30}) {
    // Only a loaded machine needs the long one.
    std::string seen = "nothing tried";
    for (const milliseconds patience : {milliseconds(700), milliseconds(8000)}) {
      if (seen.empty()) break;
      Declare({"here", "here"});
      const int lowest = dup(0);
      close(lowest);
      rlimit old;
      ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
      rlimit low = old;
      low.rlim_cur = lowest + more + 2;  // the capture of stderr
      ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
      const auto outcomes = Start({0, 1}, "auto", patience, [] {});
      ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
      bool named = Count("ulimit -n") > 0;
      bool all_ok = true;
      for (const Status& outcome : outcomes) {
        all_ok = all_ok && outcome.ok();
        named = named || Has(outcome, "ulimit -n");
      }
      seen = all_ok || named ? "" : StrCat(outcomes[0], "; ", outcomes[1], "; ", log_);
    }
    EXPECT_EQ(seen, "") << more;
  }
}

}  // namespace
}  // namespace hvd
