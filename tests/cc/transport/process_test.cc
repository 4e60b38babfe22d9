// What every transport between processes must do when one of them is killed, stopped, or
// silent.  A new transport adds its name to the list at the end.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <numeric>
#include <thread>

#include "tests/cc/transport/rank_processes.h"
#include "tf_ops/base/strings.h"

namespace hvd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// From the death of a rank until the others know; five times what is promised under load.
constexpr auto kNotice = seconds(2);

std::vector<int> Everyone(int size) {
  std::vector<int> all(size);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// One step of a ring with `bytes` bytes.
Status Ring(Transport& transport, size_t bytes, Deadline deadline) {
  std::vector<char> out(bytes, 'x'), in(bytes);
  const int n = transport.size();
  return transport.SendRecv({(transport.rank() + 1) % n, ConstBytes(out.data(), bytes),
                             (transport.rank() + n - 1) % n, Bytes(in.data(), bytes), deadline});
}

Status Allreduce(Transport& transport, uint64_t sequence, std::vector<float>* data) {
  CollectiveCall call;
  call.sequence = sequence;
  call.kind = Kind::kAllreduce;
  call.dtype = DType::kFloat32;
  auto* const bytes = reinterpret_cast<std::byte*>(data->data());
  call.segments.push_back({bytes, bytes, static_cast<int64_t>(data->size())});
  Status status;
  transport.Launch(call, [&](Status outcome) { status = std::move(outcome); });
  return status;
}

// The transport's own allreduce where it has one, else a ring.
Status Step(Transport& transport, uint64_t sequence) {
  std::vector<float> data(1 << 20, 1.0f);
  if (!transport.IsNative(Kind::kAllreduce)) {
    return Ring(transport, data.size() * sizeof(float), Deadline::Never());
  }
  HVD_RETURN_IF_ERROR(Allreduce(transport, sequence, &data));
  const bool right = data[0] == static_cast<float>(transport.size()) && data.back() == data[0];
  return right ? Status::Ok() : Status::Internal("wrong sum");
}

std::string WantPeerLost(const Status& status) {
  return status.code() == Code::kPeerLost ? "" : StrCat("ended with ", status);
}

class ProcessTest : public testing::TestWithParam<std::string> {};

void ExpectTheOthersEnd(RankProcesses* ranks, int victim, int size) {
  for (int r = 0; r < size; ++r) ASSERT_TRUE(ranks->Await(r, 'r'));
  std::this_thread::sleep_for(milliseconds(50));  // somewhere in the middle of it
  ranks->Signal(victim, SIGKILL);
  const auto killed = Clock::now();
  for (int r = 0; r < size; ++r) {
    if (r == victim) continue;
    EXPECT_EQ(ranks->Join(r), "");
    EXPECT_LT(Clock::now() - killed, kNotice) << "rank " << r;
  }
}

TEST_P(ProcessTest, AKilledRankEndsTheMessagesOfTheOthers) {
  for (int victim : {0, 1}) {
    RankProcesses ranks(GetParam(), 3, [](const RankProcess& me) {
      const auto transport = me.fabric.NewTransport(Everyone(3));
      me.Tell('r');
      Status status;
      while (status.ok()) status = Ring(*transport, 5'000'000, Deadline::Never());
      return WantPeerLost(status);
    });
    ExpectTheOthersEnd(&ranks, victim, 3);
  }
}

TEST_P(ProcessTest, AKilledRankEndsTheCollectivesOfTheOthers) {
  for (int victim : {0, 1}) {
    RankProcesses ranks(GetParam(), 3, [](const RankProcess& me) {
      const auto transport = me.fabric.NewTransport(Everyone(3));
      me.Tell('r');
      Status status;
      for (uint64_t i = 1; status.ok(); ++i) status = Step(*transport, i);
      return WantPeerLost(status);
    });
    ExpectTheOthersEnd(&ranks, victim, 3);
  }
}

TEST_P(ProcessTest, AKilledRankIsNoticedWhileItsChildHoldsItsDescriptors) {
  constexpr int kVictim = 1;
  RankProcesses ranks(GetParam(), 2, [](const RankProcess& me) {
    const auto transport = me.fabric.NewTransport(Everyone(2));
    std::string wrong;
    const Status first = Step(*transport, 1);  // all connections are there
    if (!first.ok()) wrong = StrCat("the first step ended with ", first);
    if (me.rank == kVictim) me.ForkHolder();
    me.Tell('r');
    Status status;
    for (uint64_t i = 2; status.ok(); ++i) status = Step(*transport, i);
    return wrong.empty() ? WantPeerLost(status) : wrong;
  });
  ExpectTheOthersEnd(&ranks, kVictim, 2);
}

TEST_P(ProcessTest, AStoppedRankIsWaitedFor) {
  RankProcesses ranks(GetParam(), 2, [](const RankProcess& me) {
    const auto transport = me.fabric.NewTransport(Everyone(2));
    Status status = Step(*transport, 1);
    me.Tell('r');
    if (me.rank == 1) raise(SIGSTOP);
    for (uint64_t i = 2; i < 5 && status.ok(); ++i) status = Step(*transport, i);
    me.Tell('d');
    me.AwaitRelease();  // who ends first would end the last step of the other
    return status.ok() ? "" : status.ToString();
  });
  ASSERT_TRUE(ranks.Await(0, 'r') && ranks.Await(1, 'r'));
  EXPECT_FALSE(ranks.Await(0, 'd', milliseconds(300)));
  ranks.Signal(1, SIGCONT);
  EXPECT_TRUE(ranks.Await(0, 'd') && ranks.Await(1, 'd'));
  ranks.Release();
  EXPECT_EQ(ranks.Join(0), "");
  EXPECT_EQ(ranks.Join(1), "");
}

TEST_P(ProcessTest, ADeadlineEndsTheWaitForAStoppedRank) {
  RankProcesses ranks(GetParam(), 2, [](const RankProcess& me) -> std::string {
    const auto transport = me.fabric.NewTransport(Everyone(2));
    Status status = Step(*transport, 1);
    me.Tell('r');
    if (me.rank == 1) raise(SIGSTOP);
    int in = 0;
    status = transport->SendRecv(
        {-1, {}, 1 - me.rank, Bytes(&in, sizeof(in)), Deadline::After(milliseconds(200))});
    return status.code() == Code::kDeadlineExceeded ? "" : StrCat("ended with ", status);
  });
  ASSERT_TRUE(ranks.Await(1, 'r'));
  EXPECT_EQ(ranks.Join(0), "");
}

// Rank 1 calls rank 0, which has no descriptor left for it: without an end to the wait, both
// would wait for ever.
TEST(TcpProcessTest, ARankWithoutDescriptorsEndsItsWaitAndNamesTheLimit) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UndefinedBehaviorSanitizer, in the same build, needs descriptors of its own";
#endif
  RankProcesses ranks("tcp", 2, [](const RankProcess& me) -> std::string {
    const auto transport = me.fabric.NewTransport(Everyone(2));
    if (me.rank == 0) {
      const int lowest = dup(0);
      close(lowest);
      rlimit low;
      getrlimit(RLIMIT_NOFILE, &low);
      low.rlim_cur = lowest;
      setrlimit(RLIMIT_NOFILE, &low);
      me.Tell('r');
    } else {
      me.AwaitRelease();
    }
    const Status status = Ring(*transport, 1, Deadline::Never());
    if (me.rank == 1) return WantPeerLost(status);
    const bool named = status.message().find("ulimit -n") != std::string::npos;
    return status.code() == Code::kInternal && named ? "" : StrCat("ended with ", status);
  });
  ASSERT_TRUE(ranks.Await(0, 'r'));
  ranks.Release();
  EXPECT_EQ(ranks.Join(0), "");
  EXPECT_EQ(ranks.Join(1), "");
}

INSTANTIATE_TEST_SUITE_P(Transports, ProcessTest, testing::Values("auto", "shm", "tcp"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace hvd
