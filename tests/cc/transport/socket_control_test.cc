// The control channel over sockets: what it does while nobody can see it.

#include "tf_ops/transport/net/socket_control.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <memory>
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

// Sends `fd` as often as it takes until this user, who has no privileges, may not pass another
// one.  The limit on open files is the limit on descriptors under way, too.
bool FillTheWay(int socket, int fd) {
  constexpr int kMany = 128;  // half of it is more than are open here
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  limit.rlim_cur = kMany / 2;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  alignas(cmsghdr) char control[CMSG_SPACE(kMany * sizeof(int))] = {};
  char byte = 0;
  iovec part = {&byte, 1};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(kMany * sizeof(int));
  for (int i = 0; i < kMany; ++i) {
    std::memcpy(CMSG_DATA(header) + i * sizeof(int), &fd, sizeof(fd));
  }
  return sendmsg(socket, &message, 0) == 1;
}

bool FreeTheWay() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  limit.rlim_cur = limit.rlim_max;
  return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

// Else it would be taken for the one that was refused.
TEST_F(SocketControlTest, AfterARefusedDescriptorNoLaterOneComes) {
  const pid_t child = fork();
  if (child == 0) {
    const auto check = [](bool right, int what) {
      if (!right) _exit(what);
    };
    // Root has no limit.  Where it cannot become another user, in a user namespace, it has one.
    constexpr int kNobody = 65534;
    check(geteuid() != 0 || setuid(kNobody) == 0 || errno == EINVAL, 1);
    SocketControl theirs(&table_, nullptr);
    theirs.Attach(0, std::move(theirs_));
    const auto passed =
        std::make_shared<const Fd>(Fd::Make(&table_, [] { return eventfd(0, EFD_CLOEXEC); }));
    int way[2];
    check(socketpair(AF_UNIX, SOCK_STREAM, 0, way) == 0, 2);
    control_.SendWithFd(kPeer, "before", passed);
    check(FillTheWay(way[0], passed->get()), 3);
    control_.SendWithFd(kPeer, "refused", passed);
    check(FreeTheWay(), 4);
    control_.SendWithFd(kPeer, "after", passed);
    for (const char* text : {"before", "refused", "after"}) {
      check(theirs.WaitAny(Deadline::After(seconds(20))).frame == text, 5);
    }
    check(theirs.TakeFd(0).valid(), 6);
    check(!theirs.TakeFd(0).valid(), 7);
    check(!theirs.TakeFd(0).valid(), 8);
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "the number of the check that failed";
}

}  // namespace
}  // namespace hvd
