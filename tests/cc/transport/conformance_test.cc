// What every transport must do, once for all of them.  A new transport adds its name to
// the list at the end.

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <numeric>
#include <thread>

#include "tests/cc/transport/fabrics.h"

namespace hvd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class Conformance : public testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  std::string transport() const { return std::get<0>(GetParam()); }
  int size() const { return std::get<1>(GetParam()); }

  // Runs `body` as every rank of a fresh job, each in a thread.
  void Run(const std::function<void(int rank, Fabric& fabric)>& body) {
    FdTable table;
    Fabrics fabrics = MakeFabrics(transport(), size(), &table);
    std::vector<std::thread> threads;
    for (int r = 0; r < size(); ++r) {
      threads.emplace_back([&, r] {
        Fabric& fabric = *fabrics.ranks[r];
        const Status status = fabric.Start(Deadline::After(seconds(20)));
        ASSERT_TRUE(status.ok()) << status;
        // As the control thread does: it also lets peers in.
        std::atomic<bool> over{false};
        std::thread control([&] {
          while (!over) fabric.control().WaitAny(Deadline::After(milliseconds(5)));
        });
        body(r, fabric);
        ++done_;
        while (done_ < size()) std::this_thread::sleep_for(milliseconds(1));
        over = true;
        control.join();
      });
    }
    for (std::thread& thread : threads) thread.join();
    done_ = 0;
  }

  std::vector<int> Everyone() const {
    std::vector<int> all(size());
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

  std::atomic<int> done_{0};
};

TEST_P(Conformance, EveryPairExchangesEverySize) {
  Run([&](int rank, Fabric& fabric) {
    const auto transport = fabric.NewTransport(Everyone());
    EXPECT_EQ(transport->rank(), rank);
    EXPECT_EQ(transport->size(), size());
    for (size_t bytes : {0, 1, 7, 64, 4096, 65537, 3000000}) {
      for (int s = 1; s < size(); ++s) {
        const int to = (rank + s) % size();
        const int from = (rank - s + size()) % size();
        std::vector<uint8_t> out(bytes), in(bytes, 0xee);
        for (size_t i = 0; i < bytes; ++i) out[i] = static_cast<uint8_t>(i * 31 + rank * 7 + to);
        const Status status =
            transport->SendRecv({to, ConstBytes(out.data(), bytes), from, Bytes(in.data(), bytes),
                                 Deadline::After(seconds(20))});
        ASSERT_TRUE(status.ok()) << status;
        for (size_t i = 0; i < bytes; ++i) {
          ASSERT_EQ(in[i], static_cast<uint8_t>(i * 31 + from * 7 + rank)) << i << " of " << bytes;
        }
      }
    }
  });
}

TEST_P(Conformance, OneSideMayTakeNoPart) {
  if (size() < 2) return;
  Run([&](int rank, Fabric& fabric) {
    const auto transport = fabric.NewTransport(Everyone());
    int value = rank == 0 ? 42 : 0;
    Status status;
    if (rank == 0) {
      status = transport->SendRecv({1, ConstBytes(&value, sizeof(value)), -1, {}, {}});
    } else if (rank == 1) {
      status = transport->SendRecv({-1, {}, 0, Bytes(&value, sizeof(value)), {}});
      EXPECT_EQ(value, 42);
    }
    EXPECT_TRUE(status.ok()) << status;
  });
}

TEST_P(Conformance, ASubsetHasItsOwnRanks) {
  if (size() < 3) return;
  Run([&](int rank, Fabric& fabric) {
    if (rank == 0) return;
    std::vector<int> members;
    for (int r = 1; r < size(); ++r) members.push_back(r);
    const auto transport = fabric.NewTransport(members);
    EXPECT_EQ(transport->rank(), rank - 1);
    const int n = transport->size();
    int in = -1;
    const Status status =
        transport->SendRecv({rank % n, ConstBytes(&rank, sizeof(rank)), (rank - 2 + n) % n,
                             Bytes(&in, sizeof(in)), Deadline::After(seconds(20))});
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(in, members[(rank - 2 + n) % n]);
  });
}

TEST_P(Conformance, ADeadlineEndsTheWait) {
  if (size() < 2) return;
  Run([&](int rank, Fabric& fabric) {
    const auto transport = fabric.NewTransport(Everyone());
    if (rank != 0) return;  // never answers
    int in = 0;
    const Status status =
        transport->SendRecv({-1, {}, 1, Bytes(&in, sizeof(in)), Deadline::After(milliseconds(50))});
    EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status;
  });
}

TEST_P(Conformance, AbortFromAnotherThreadEndsTheWaitWithItsReason) {
  if (size() < 2) return;
  Run([&](int rank, Fabric& fabric) {
    const auto transport = fabric.NewTransport(Everyone());
    std::thread other([&] {
      // Rank 0 first: the others may also notice that it hangs up.
      std::this_thread::sleep_for(milliseconds(rank == 0 ? 20 : 500));
      fabric.Abort(Status::PeerLost("rank 7 burned down"));
    });
    int in = 0;
    const int from = (rank + 1) % size();
    Status status = transport->SendRecv({-1, {}, from, Bytes(&in, sizeof(in)), {}});
    EXPECT_EQ(status.code(), Code::kPeerLost);
    if (rank == 0) {
      EXPECT_NE(status.message().find("burned"), std::string::npos) << status;
    }
    other.join();
    // It stays failed.
    status = transport->SendRecv({from, ConstBytes(&in, sizeof(in)), -1, {}, {}});
    EXPECT_FALSE(status.ok());
  });
}

TEST_P(Conformance, AnAbortBeforeTheCallCountsToo) {
  if (size() < 2) return;
  Run([&](int rank, Fabric& fabric) {
    const auto transport = fabric.NewTransport(Everyone());
    fabric.Abort(Status::PeerLost("rank 7 burned down"));
    const int byte = 0;
    const Status status =
        transport->SendRecv({(rank + 1) % size(), ConstBytes(&byte, 1), -1, {}, {}});
    EXPECT_EQ(status.code(), Code::kPeerLost) << status;
  });
}

TEST_P(Conformance, AFailureStays) {
  if (size() < 2) return;
  Run([&](int rank, Fabric& fabric) {
    const auto transport = fabric.NewTransport(Everyone());
    if (rank != 0) return;  // never answers
    int in = 0;
    for (int again = 0; again < 2; ++again) {
      const Status status = transport->SendRecv(
          {-1, {}, 1, Bytes(&in, sizeof(in)), Deadline::After(milliseconds(50))});
      EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status;
    }
  });
}

TEST_P(Conformance, ADifferentSizeIsFoundOut) {
  if (size() != 2) return;
  Run([&](int rank, Fabric& fabric) {
    const auto transport = fabric.NewTransport(Everyone());
    char bytes[8] = {};
    const Status status =
        rank == 0 ? transport->SendRecv(
                        {1, ConstBytes(bytes, 4), -1, {}, Deadline::After(milliseconds(200))})
                  : transport->SendRecv({-1, {}, 0, Bytes(bytes, 8), Deadline::After(seconds(20))});
    if (rank == 1) {
      EXPECT_EQ(status.code(), Code::kInternal) << status;
    }
  });
}

TEST_P(Conformance, ControlFramesKeepTheirOrderAndBellsRing) {
  FdTable table;
  Fabrics fabrics = MakeFabrics(transport(), size(), &table);
  constexpr int kFrames = 200;
  std::vector<std::thread> threads;
  for (int r = 0; r < size(); ++r) {
    threads.emplace_back([&, r] {
      Fabric& fabric = *fabrics.ranks[r];
      ASSERT_TRUE(fabric.Start(Deadline::After(seconds(20))).ok());
      ControlChannel& control = fabric.control();
      if (r != 0) {  // nobody speaks to it yet
        control.Wake();
        EXPECT_EQ(control.WaitAny(Deadline::After(seconds(20))).type, ControlEvent::Type::kWake);
      }
      // Frames grow to a megabyte, so that reads and writes are cut anywhere.
      const auto frame = [](int i) { return std::string(i * i * 26, 'a' + i % 26); };
      if (r != 0) {
        for (int i = 0; i < kFrames; ++i) control.Send(0, frame(i));
        const ControlEvent event = control.WaitAny(Deadline::After(seconds(20)));
        EXPECT_EQ(event.type, ControlEvent::Type::kFrame);
        EXPECT_EQ(event.frame, "thanks");
        return;
      }
      std::vector<int> next(size(), 0);
      for (int got = 0; got < kFrames * (size() - 1);) {
        const ControlEvent event = control.WaitAny(Deadline::After(seconds(20)));
        ASSERT_EQ(event.type, ControlEvent::Type::kFrame);
        ASSERT_EQ(event.frame, frame(next[event.peer]++));
        ++got;
      }
      for (int peer = 1; peer < size(); ++peer) control.Send(peer, "thanks");
      control.Finish(Deadline::After(milliseconds(200)));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(Conformance, ARankThatEndsIsClosedOnce) {
  if (size() < 2) return;
  FdTable table;
  Fabrics fabrics = MakeFabrics(transport(), size(), &table);
  std::vector<std::thread> threads;
  for (int r = 0; r < size(); ++r) {
    threads.emplace_back([&, r] {
      ASSERT_TRUE(fabrics.ranks[r]->Start(Deadline::After(seconds(20))).ok());
      if (r == 1) fabrics.ranks[r].reset();
      if (r != 0) return;
      const ControlEvent event = fabrics.ranks[0]->control().WaitAny(Deadline::After(seconds(20)));
      EXPECT_EQ(event.type, ControlEvent::Type::kClosed);
      EXPECT_EQ(event.peer, 1);
      EXPECT_EQ(fabrics.ranks[0]->control().WaitAny(Deadline::After(milliseconds(20))).type,
                ControlEvent::Type::kTimeout);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

INSTANTIATE_TEST_SUITE_P(Transports, Conformance,
                         testing::Combine(testing::Values("local", "shm", "tcp"),
                                          testing::Values(1, 2, 3, 4, 7)),
                         [](const auto& info) {
                           return std::get<0>(info.param) + std::to_string(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace hvd
