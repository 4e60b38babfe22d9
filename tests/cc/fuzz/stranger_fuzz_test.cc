// Hundreds of strangers at the listening sockets of ranks that come together and work: none
// gets in, the ranks succeed, and what strangers cost is bounded.
//
// What one stranger of a kind gets is in tests/cc/transport/handshake_test.cc.

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <new>
#include <random>
#include <thread>

#include "tests/cc/transport/fabrics.h"
#include "tf_ops/base/log.h"
#include "tf_ops/collectives/algorithms/allreduce.h"
#include "tf_ops/transport/net/acceptor.h"
#include "tf_ops/transport/net/caller.h"
#include "tf_ops/transport/net/endpoint.h"
#include "tf_ops/transport/net/socket.h"

namespace {
std::atomic<int64_t> live{0};  // bytes on the heap
}  // namespace

// Never inlined: a compiler that saw both halves of a pair would take free() for a mistake.
[[gnu::noinline]] void* operator new(size_t bytes) {
  void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  live += static_cast<int64_t>(malloc_usable_size(memory));
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  if (memory != nullptr) live -= static_cast<int64_t>(malloc_usable_size(memory));
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { operator delete(memory); }

namespace hvd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Strangers at each rank while the ranks come together and work.
constexpr int kStrangers = 150;
// More than an acceptor talks to at once.
constexpr int kFlood = 3 * static_cast<int>(Acceptor::kMostPending);

int OpenDescriptors() {
  const std::filesystem::directory_iterator begin("/proc/self/fd"), end;
  return static_cast<int>(std::distance(begin, end));
}

// One after another they knock at `listener`, each in a way that its seed says.
class Strangers {
 public:
  // `job`: as a rank of it knows it.
  Strangers(const World& job, int listener, FdTable* table)
      : job_(job),
        listener_(listener),
        endpoints_(Callable(job.endpoints[listener], /*same_host=*/true)),
        table_(table) {}

  void Knock(unsigned seed) {
    std::mt19937 random(seed);
    Fd fd;
    const Deadline soon = Deadline::After(milliseconds(200));
    if (!Dial(endpoints_[random() % endpoints_.size()], table_, -1, soon, &fd).ok()) return;
    Challenge challenge;
    const unsigned kind = random() % 10;
    if (kind > 3 && !ReadAll(fd.get(), {&challenge, sizeof(challenge)}, -1, soon).ok()) return;
    Claim claim = {};
    World liar = job_;
    switch (kind) {
      case 0:  // half-open, as long as this object lives
        if (held_.size() < kMostHeld) held_.push_back(std::move(fd));
        return;
      case 1:  // gone at once, with a reset
        return Reset(std::move(fd));
      case 2:
        return Send(fd, "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n");
      case 3: {  // up to twice a claim
        std::string noise(random() % (2 * sizeof(Claim)), '\0');
        for (char& c : noise) c = static_cast<char>(random());
        return Send(fd, noise);
      }
      case 4:
        claim = recorded_;  // of another connection
        break;
      case 5:
        liar.secret = "guessed";
        break;
      case 6:
        liar.generation += 1;
        break;
      case 7:
        liar.nonce = "older";
        break;
      default:  // a true claim, all but its last words
        break;
    }
    const auto channel = static_cast<Channel>(random() % 2);
    Claim answer;
    if (!AnswerChallenge(liar, challenge, channel, listener_, &answer).ok()) return;
    if (kind != 4) claim = answer;
    if (kind == 8) claim.caller = 1 - claim.caller;  // signed for another rank
    if (kind >= 8) recorded_ = answer;
    std::string bytes(reinterpret_cast<const char*>(&claim), sizeof(claim));
    if (kind == 9) bytes.resize(random() % sizeof(claim));
    Send(fd, bytes);
    if (random() % 2 == 0) Reset(std::move(fd));
  }

 private:
  // Fewer than an acceptor talks to, so that ranks are not delayed.
  static constexpr size_t kMostHeld = 40;

  void Send(const Fd& fd, const std::string& bytes) {
    (void)WriteAll(fd.get(), {bytes.data(), bytes.size()}, -1, Deadline::After(milliseconds(200)));
  }
  static void Reset(Fd fd) {
    const linger now = {1, 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  }

  const World job_;
  const int listener_;
  const std::vector<std::string> endpoints_;
  FdTable* const table_;
  Claim recorded_ = {};
  std::vector<Fd> held_;
};

class StrangerFuzz : public testing::TestWithParam<std::string> {};

TEST_P(StrangerFuzz, RanksComeTogetherAndWorkAmongThem) {
  SetLogging(LogLevel::kError, false, 0);
  ASSERT_TRUE(StartCrypto().ok());
  constexpr int kRanks = 3;
  constexpr uint64_t kCalls = 50;
  FdTable table, outside;
  Fabrics fabrics = MakeFabrics(GetParam(), kRanks, &table);
  std::atomic<int> besieged{0}, tired{0}, worked{0};
  std::vector<std::thread> threads;
  for (int r = 0; r < kRanks; ++r) {
    threads.emplace_back([&, r] {
      Strangers strangers(fabrics.worlds[(r + 1) % kRanks], r, &outside);
      for (int i = 0; i < kStrangers; ++i) {
        strangers.Knock(r * kStrangers + i);
        if (i == kStrangers / 10) ++besieged;
      }
      ++tired;
      while (worked < kRanks) std::this_thread::sleep_for(milliseconds(1));
    });
    threads.emplace_back([&, r] {
      while (besieged < kRanks) std::this_thread::sleep_for(milliseconds(1));
      Fabric& fabric = *fabrics.ranks[r];
      const Status started = fabric.Start(Deadline::After(seconds(60)));
      EXPECT_TRUE(started.ok()) << started;
      std::atomic<bool> done{!started.ok()};
      std::thread control([&] {
        while (!done) {
          const ControlEvent event = fabric.control().WaitAny(Deadline::After(milliseconds(5)));
          const bool is_word =
              event.type == ControlEvent::Type::kFrame || event.type == ControlEvent::Type::kClosed;
          EXPECT_FALSE(is_word) << "rank " << event.peer << ": " << event.text;
        }
      });
      if (started.ok()) {
        const auto transport = fabric.NewTransport({0, 1, 2});
        for (uint64_t call = 1; call <= kCalls; ++call) {
          std::vector<float> values(1000, static_cast<float>(r + 1));
          CollectiveCall sum;
          sum.sequence = call;
          sum.kind = Kind::kAllreduce;
          sum.dtype = DType::kFloat32;
          sum.segments.push_back({reinterpret_cast<const std::byte*>(values.data()),
                                  reinterpret_cast<std::byte*>(values.data()), 1000});
          Status status;
          std::vector<std::byte> scratch(1 << 16);
          if (transport->IsNative(Kind::kAllreduce)) {
            transport->Launch(sum, [&](Status outcome) { status = std::move(outcome); });
          } else {
            status = AllreduceDirect(*transport, sum, Bytes(scratch.data(), scratch.size()));
          }
          EXPECT_TRUE(status.ok()) << status;
          EXPECT_EQ(values, std::vector<float>(1000, 6.0f));
          if (!status.ok()) break;
        }
      }
      ++worked;
      while (worked < kRanks || tired < kRanks) std::this_thread::sleep_for(milliseconds(1));
      done = true;
      control.join();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

INSTANTIATE_TEST_SUITE_P(Transports, StrangerFuzz, testing::Values("tcp", "shm"));

TEST(StrangerFlood, CostsNoMoreThanItMay) {
  SetLogging(LogLevel::kError, false, 0);
  ASSERT_TRUE(StartCrypto().ok());
  FdTable table, outside;
  Doorbell bell(&outside);
  std::vector<Listeners> listeners;
  const std::vector<World> worlds = WorldsOf(2, &table, &listeners);
  std::atomic<int> accepted{0};
  Acceptor acceptor(worlds[0], std::move(listeners[0]), &table,
                    [&](Channel, int, Fd) { ++accepted; });
  const std::vector<std::string> endpoints = Callable(worlds[0].endpoints[0], /*same_host=*/true);
  std::vector<Fd> flood;
  flood.reserve(kFlood);
  for (int i = 0; i < kFlood; ++i) {
    Fd fd;
    (void)Dial(endpoints[i % endpoints.size()], &outside, -1, Deadline::After(milliseconds(20)),
               &fd);
    if (fd.valid()) flood.push_back(std::move(fd));
  }
  ASSERT_GT(flood.size(), Acceptor::kMostPending);

  const int64_t before = live;
  const int descriptors = OpenDescriptors();
  for (int i = 0; i < 50; ++i) acceptor.Step();
  EXPECT_EQ(OpenDescriptors() - descriptors, static_cast<int>(Acceptor::kMostPending));
  // A pending handshake is a nonce, a claim and two places in maps.
  EXPECT_LT(live - before, static_cast<int64_t>(Acceptor::kMostPending * 512));

  // The strangers stay, three for each place, and a rank gets in among them all the same.
  std::atomic<bool> over{false};
  std::thread rank([&] {
    Fd fd;
    const Status status = CallPeer(worlds[1], 0, endpoints, Channel::kControl, &outside, bell.fd(),
                                   Deadline::After(seconds(20)), &fd);
    EXPECT_TRUE(status.ok()) << status;
    over = true;
  });
  while (!over) {
    acceptor.Step();
    std::this_thread::sleep_for(milliseconds(1));
  }
  rank.join();
  EXPECT_EQ(accepted, 1);
  flood.clear();
  for (int i = 0; i < 50; ++i) acceptor.Step();
  EXPECT_LT(live - before, static_cast<int64_t>(Acceptor::kMostPending * 512));
  EXPECT_LE(OpenDescriptors(), descriptors);
}

}  // namespace
}  // namespace hvd
