// Who gets in at a rank's listening socket, and who does not.

#include "tf_ops/transport/net/handshake.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cc/transport/fabrics.h"
#include "tf_ops/transport/net/acceptor.h"
#include "tf_ops/transport/net/caller.h"
#include "tf_ops/transport/net/endpoint.h"
#include "tf_ops/transport/net/socket.h"

namespace hvd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class HandshakeTest : public testing::Test {
 protected:
  // Steps while no more than `most` descriptors can be opened.
  void StepWithDescriptors(int most) {
    const int lowest = dup(0);
    close(lowest);
    rlimit old;
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
    rlimit low = old;
    low.rlim_cur = lowest + most;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
    for (int i = 0; i < 3; ++i) acceptor_->Step();
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
  }

  void SetUp() override {
    ASSERT_TRUE(StartCrypto().ok());
    std::vector<Listeners> listeners;
    worlds_ = WorldsOf(3, &table_, &listeners);
    acceptor_.emplace(
        worlds_[0], std::move(listeners[0]), &table_,
        [this](Channel channel, int peer, Fd fd) {
          ++accepted_;
          channel_ = channel;
          peer_ = peer;
          fd_ = std::move(fd);
        },
        [this](const std::string& trouble) { troubles_.push_back(trouble); });
  }

  // Runs the acceptor, as the control thread does, while `stranger` acts.
  void While(const std::function<void()>& stranger) {
    std::atomic<bool> over{false};
    std::thread other([&] {
      stranger();
      over = true;
    });
    const Deadline end = Deadline::After(seconds(20));
    while (!over && !end.passed()) {
      acceptor_->Step();
      std::this_thread::sleep_for(milliseconds(1));
    }
    for (int i = 0; i < 20; ++i) {  // what is still in the socket
      acceptor_->Step();
      std::this_thread::sleep_for(milliseconds(1));
    }
    other.join();
  }

  Fd Knock() {
    Fd fd;
    const Status status = Dial(worlds_[1].endpoints[0][0], &table_, bell_.fd(), Soon(), &fd);
    EXPECT_TRUE(status.ok()) << status;
    return fd;
  }
  Challenge ReadChallenge(const Fd& fd) {
    Challenge challenge;
    EXPECT_TRUE(ReadAll(fd.get(), {&challenge, sizeof(challenge)}, -1, Soon()).ok());
    return challenge;
  }
  void Send(const Fd& fd, const Claim& claim) {
    (void)WriteAll(fd.get(), {&claim, sizeof(claim)}, -1, Soon());
  }
  // True when the other side has hung up.
  bool HungUp(const Fd& fd) {
    char byte;
    return ReadAll(fd.get(), {&byte, 1}, -1, Soon()).code() == Code::kPeerLost;
  }
  static Deadline Soon() { return Deadline::After(seconds(10)); }

  FdTable table_;
  Doorbell bell_{&table_};
  std::vector<World> worlds_;
  std::optional<Acceptor> acceptor_;
  int accepted_ = 0;
  Channel channel_ = Channel::kControl;
  int peer_ = -1;
  Fd fd_;
  std::vector<std::string> troubles_;  // one after another
};

TEST_F(HandshakeTest, ARankGetsInAndCanSpeak) {
  While([&] {
    Fd fd;
    const Status status = CallPeer(worlds_[2], 0, Callable(worlds_[2].endpoints[0], false),
                                   Channel::kData, &table_, bell_.fd(), Soon(), &fd);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_TRUE(WriteAll(fd.get(), {"hello", 5}, -1, Soon()).ok());
    std::this_thread::sleep_for(milliseconds(50));
  });
  ASSERT_EQ(accepted_, 1);
  EXPECT_EQ(peer_, 2);
  EXPECT_EQ(channel_, Channel::kData);
  char text[5];
  ASSERT_TRUE(ReadAll(fd_.get(), {text, 5}, -1, Soon()).ok());
  EXPECT_EQ(std::string(text, 5), "hello");
}

TEST_F(HandshakeTest, AnotherSecretGenerationOrNonceIsTurnedAway) {
  std::vector<World> strangers(3, worlds_[1]);
  strangers[0].secret = "another";
  strangers[1].generation = 2;
  strangers[2].nonce = "another";
  for (const World& stranger : strangers) {
    While([&] {
      Fd fd;
      const Status status =
          CallPeer(stranger, 0, Callable(stranger.endpoints[0], false), Channel::kControl, &table_,
                   bell_.fd(), Deadline::After(milliseconds(300)), &fd);
      EXPECT_FALSE(status.ok());
      EXPECT_NE(status.message().find("rank 0 (host here)"), std::string::npos) << status;
    });
  }
  EXPECT_EQ(accepted_, 0);
}

TEST_F(HandshakeTest, ARecordedClaimIsWorthNothingLater) {
  Claim recorded;
  While([&] {
    Fd fd = Knock();
    ASSERT_TRUE(
        AnswerChallenge(worlds_[1], ReadChallenge(fd), Channel::kControl, 0, &recorded).ok());
    Send(fd, recorded);
    std::this_thread::sleep_for(milliseconds(50));
  });
  ASSERT_EQ(accepted_, 1);
  While([&] {
    Fd fd = Knock();
    ReadChallenge(fd);
    Send(fd, recorded);
    EXPECT_TRUE(HungUp(fd));
  });
  EXPECT_EQ(accepted_, 1);
}

TEST_F(HandshakeTest, AClaimOfAnotherRankOrChannelIsTurnedAway) {
  for (int what = 0; what < 4; ++what) {
    While([&] {
      Fd fd = Knock();
      Claim claim;
      World liar = worlds_[1];
      if (what == 0) liar.rank = 0;  // the listener itself
      if (what == 1) liar.rank = 3;  // beyond the job
      if (what == 2) liar.rank = -1;
      const Channel channel = what == 3 ? static_cast<Channel>(9) : Channel::kControl;
      ASSERT_TRUE(AnswerChallenge(liar, ReadChallenge(fd), channel, 0, &claim).ok());
      Send(fd, claim);
      EXPECT_TRUE(HungUp(fd)) << what;
    });
  }
  EXPECT_EQ(accepted_, 0);
}

TEST_F(HandshakeTest, AClaimForOneListenerIsNotForAnother) {
  While([&] {
    Fd fd = Knock();
    Claim claim;
    ASSERT_TRUE(AnswerChallenge(worlds_[1], ReadChallenge(fd), Channel::kControl, 2, &claim).ok());
    Send(fd, claim);
    EXPECT_TRUE(HungUp(fd));
  });
  EXPECT_EQ(accepted_, 0);
}

TEST_F(HandshakeTest, NoiseDoesNothingAndRanksStillGetIn) {
  While([&] {
    std::mt19937 random(1);
    std::vector<Fd> silent;
    for (int i = 0; i < 50; ++i) silent.push_back(Knock());  // half-open, for the whole test
    for (int i = 0; i < 50; ++i) {
      Fd fd = Knock();
      std::string noise = i % 2 ? "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" : "";
      while (noise.size() < sizeof(Claim) + 10) noise += static_cast<char>(random());
      (void)WriteAll(fd.get(), {noise.data(), noise.size()}, -1, Soon());
    }
    Fd fd;
    const Status status = CallPeer(worlds_[1], 0, Callable(worlds_[1].endpoints[0], false),
                                   Channel::kControl, &table_, bell_.fd(), Soon(), &fd);
    EXPECT_TRUE(status.ok()) << status;
    std::this_thread::sleep_for(milliseconds(50));
  });
  EXPECT_EQ(accepted_, 1);
}

// The limit is lowered to what is open: the caller has its descriptor, the listener gets none.
TEST_F(HandshakeTest, WithoutADescriptorItSaysSoUntilThereIsOne) {
  const Fd fd = Knock();
  ASSERT_NO_FATAL_FAILURE(StepWithDescriptors(0));
  ASSERT_EQ(troubles_.size(), 1u);
  EXPECT_NE(troubles_[0].find("ulimit -n"), std::string::npos) << troubles_[0];
  EXPECT_EQ(acceptor_->trouble(), troubles_[0]);
  While([&] { ReadChallenge(fd); });
  ASSERT_EQ(troubles_.size(), 2u);
  EXPECT_EQ(troubles_[1], "");
}

// accept(2) asks for a descriptor even when nobody waits.
TEST_F(HandshakeTest, TheLastDescriptorIsEnoughForTheLastCaller) {
  const Fd fd = Knock();
  ASSERT_NO_FATAL_FAILURE(StepWithDescriptors(1));
  EXPECT_TRUE(troubles_.empty()) << troubles_[0];
  ReadChallenge(fd);
}

// A forked child holds the connection of a stranger that is turned away.
TEST_F(HandshakeTest, AStrangerThatIsGoneKeepsNobodyBusy) {
  Fd fd = Knock();
  const int lowest = dup(0);
  close(lowest);
  acceptor_->Step();  // the listener's end gets the lowest number
  const Fd held = Fd::Make(&table_, [&] { return dup(lowest); });
  ASSERT_TRUE(held.valid());
  fd.Close();
  While([] { std::this_thread::sleep_for(milliseconds(50)); });
  pollfd ready = {acceptor_->fd(), POLLIN, 0};
  EXPECT_EQ(poll(&ready, 1, 0), 0);
}

TEST_F(HandshakeTest, ACallerDoesNotBelieveAStrangerThatListens) {
  // A listener that does not know the secret, at the address of rank 0.
  std::vector<Listeners> listeners;
  std::vector<World> strangers = WorldsOf(1, &table_, &listeners);
  strangers[0].secret = "another";
  strangers[0].size = 3;
  Acceptor stranger(strangers[0], std::move(listeners[0]), &table_,
                    [](Channel, int, Fd) { ADD_FAILURE() << "the stranger believed the caller"; });
  World caller = worlds_[1];
  caller.endpoints[0] = strangers[0].endpoints[0];
  std::atomic<bool> over{false};
  std::thread other([&] {
    Fd fd;
    EXPECT_FALSE(CallPeer(caller, 0, Callable(caller.endpoints[0], false), Channel::kControl,
                          &table_, bell_.fd(), Deadline::After(milliseconds(300)), &fd)
                     .ok());
    over = true;
  });
  while (!over) {
    stranger.Step();
    std::this_thread::sleep_for(milliseconds(1));
  }
  other.join();
}

TEST_F(HandshakeTest, ABellEndsTheCall) {
  std::thread other([&] {
    std::this_thread::sleep_for(milliseconds(50));
    bell_.Ring();
  });
  Fd fd;  // nobody steps the acceptor, so there is no challenge
  EXPECT_EQ(CallPeer(worlds_[1], 0, Callable(worlds_[1].endpoints[0], false), Channel::kControl,
                     &table_, bell_.fd(), {}, &fd)
                .code(),
            Code::kCancelled);
  other.join();
}

}  // namespace
}  // namespace hvd
