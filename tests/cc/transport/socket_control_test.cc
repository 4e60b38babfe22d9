// The control channel over sockets: what it does while nobody can see it.

#include "tf_ops/transport/net/socket_control.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <ctime>
#include <string>
#include <thread>
#include <utility>

namespace hvd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// The time that this thread has had a processor.
Clock::duration CpuTime() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

class SocketControlTest : public testing::Test {
 protected:
  static constexpr int kPeer = 1;

  // The peer's end is `theirs_`.
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    ours_ = ends[0];
    control_.Attach(kPeer, Fd::Make(&table_, [&] { return ends[0]; }));
    theirs_ = Fd::Make(&table_, [&] { return ends[1]; });
  }

  FdTable table_;
  SocketControl control_{&table_, nullptr};
  int ours_ = -1;  // the control channel owns it
  Fd theirs_;
};

TEST_F(SocketControlTest, FinishSleepsThoughTheBellRings) {
  control_.Wake();
  std::thread other([&] {
    for (int i = 0; i < 5; ++i) {
      std::this_thread::sleep_for(milliseconds(50));
      control_.Wake();
    }
  });
  const auto cpu = CpuTime();
  control_.Finish(Deadline::After(seconds(1)));  // the peer neither reads nor leaves
  EXPECT_LT(CpuTime() - cpu, milliseconds(100));
  other.join();
}

// A child that is being forked holds all descriptors for a moment, or for long.
TEST_F(SocketControlTest, ALostPeerKeepsNobodyBusyWhoseSocketIsHeldElsewhere) {
  const Fd held = Fd::Make(&table_, [&] { return fcntl(ours_, F_DUPFD_CLOEXEC, 0); });
  ASSERT_TRUE(held.valid());
  theirs_.Close();
  const ControlEvent event = control_.WaitAny(Deadline::After(seconds(20)));
  EXPECT_EQ(event.type, ControlEvent::Type::kClosed);
  EXPECT_EQ(event.peer, kPeer);
  const auto cpu = CpuTime();
  EXPECT_EQ(control_.WaitAny(Deadline::After(seconds(1))).type, ControlEvent::Type::kTimeout);
  EXPECT_LT(CpuTime() - cpu, milliseconds(100));
}

}  // namespace
}  // namespace hvd
