// How long a rank waits for the data connection of a peer that calls it.

#include "tf_ops/transport/tcp/mesh.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cc/transport/fabrics.h"

namespace hvd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr char kTrouble[] = "cannot accept a connection: no descriptor";

class MeshTest : public testing::Test {
 protected:
  // What Get() says about rank 1, which calls rank 0, in a thread of its own.
  void StartGet() {
    getter_ = std::thread([this] { status_ = mesh_.Get(1, Deadline::Never(), &link_); });
  }
  Status Outcome() {
    getter_.join();
    return status_;
  }
  void Arrive() {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    mesh_.Adopt(1, Fd::Make(&table_, [&] { return ends[0]; }));
    theirs_ = Fd::Make(&table_, [&] { return ends[1]; });
  }

  static constexpr milliseconds kMostTrouble{300};

  FdTable table_;
  std::vector<Listeners> listeners_;
  const std::vector<World> worlds_ = WorldsOf(2, &table_, &listeners_);
  Stop stop_{&table_};
  TcpMesh mesh_{worlds_[0], &table_, &stop_, kMostTrouble};
  DataLink* link_ = nullptr;
  Fd theirs_;
  std::thread getter_;
  Status status_;
};

TEST_F(MeshTest, LongTroubleEndsTheWait) {
  const auto began = Clock::now();
  StartGet();
  mesh_.SetTrouble(kTrouble);
  const Status status = Outcome();
  EXPECT_GE(Clock::now() - began, kMostTrouble);
  EXPECT_EQ(status.code(), Code::kInternal) << status;
  EXPECT_NE(status.message().find(kTrouble), std::string::npos) << status;
  EXPECT_NE(status.message().find("rank 1 (host here)"), std::string::npos) << status;
}

// A stranger may have caused it while nobody waited.
TEST_F(MeshTest, OldTroubleCountsFromTheBeginningOfTheWait) {
  mesh_.SetTrouble(kTrouble);
  std::this_thread::sleep_for(kMostTrouble);
  const auto began = Clock::now();
  StartGet();
  EXPECT_EQ(Outcome().code(), Code::kInternal);
  EXPECT_GE(Clock::now() - began, kMostTrouble);
}

TEST_F(MeshTest, TroubleThatEndsIsForgotten) {
  mesh_.SetTrouble(kTrouble);
  mesh_.SetTrouble({});
  StartGet();
  std::this_thread::sleep_for(2 * kMostTrouble);
  Arrive();
  const Status status = Outcome();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(link_->fd.valid());
}

TEST_F(MeshTest, AnArrivalBeatsTrouble) {
  Arrive();
  mesh_.SetTrouble(kTrouble);
  EXPECT_TRUE(mesh_.Get(1, Deadline::Never(), &link_).ok());
  std::this_thread::sleep_for(2 * kMostTrouble);
  EXPECT_TRUE(mesh_.Get(1, Deadline::Never(), &link_).ok());
}

}  // namespace
}  // namespace hvd
