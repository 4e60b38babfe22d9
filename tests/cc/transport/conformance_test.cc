// What every transport must do, once for all of them.  A new transport adds its name to
// the list at the end.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <thread>

#include "tests/cc/transport/fabrics.h"
#include "tf_ops/collectives/algorithms/allreduce.h"
#include "tf_ops/transport/topology.h"

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
    RunOn(
        MakeFabrics(transport(), std::vector<std::string>(size(), "here"), &table, staging_bytes_),
        body);
  }

  void RunOn(Fabrics fabrics, const std::function<void(int rank, Fabric& fabric)>& body) {
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

  // The call number `sequence` over `members`: element i of rank r is ValueOf(r, i).  Natively
  // where the transport can, else by the generic algorithm.  Elements travel as `wire_dtype`.
  template <typename T>
  void ExpectAllreduce(Transport& transport, const std::vector<int>& members, uint64_t sequence,
                       DType dtype, const std::vector<int64_t>& lengths, bool in_place,
                       std::optional<DType> wire_dtype = {}) {
    const int64_t total = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
    const auto value_of = [&](int r, int64_t i) {
      return static_cast<T>(static_cast<T>(r * 7 + 1) / static_cast<T>(3 + i % 11) + sequence % 5);
    };
    CollectiveCall call;
    call.sequence = sequence;
    call.kind = Kind::kAllreduce;
    call.dtype = wire_dtype.value_or(dtype);
    if (wire_dtype) call.segment_dtype = dtype;
    call.reduction.op = ReduceOp::kAverage;
    call.reduction.prescale = 1.5;
    call.reduction.divisor = static_cast<int>(members.size());
    std::vector<T> in(total), out(total, static_cast<T>(77));
    for (int64_t i = 0; i < total; ++i) in[i] = value_of(members[transport.rank()], i);
    int64_t at = 0;
    for (int64_t length : lengths) {
      T* const to = (in_place ? in : out).data() + at;
      call.segments.push_back({reinterpret_cast<const std::byte*>(in.data() + at),
                               reinterpret_cast<std::byte*>(to), length});
      at += length;
    }
    Status status;
    if (transport.IsNative(Kind::kAllreduce)) {
      transport.Launch(call, [&](Status outcome) { status = std::move(outcome); });
    } else {
      std::vector<std::byte> scratch(1 << 16);
      status = AllreduceDirect(transport, call, Bytes(scratch.data(), scratch.size()));
    }
    ASSERT_TRUE(status.ok()) << status;

    std::vector<std::vector<T>> all;  // as they travel, which takes no more room
    std::vector<const void*> contributions;
    for (int r : members) {
      std::vector<T> theirs(total);
      for (int64_t i = 0; i < total; ++i) theirs[i] = value_of(r, i);
      Cast(dtype, call.dtype, theirs.data(), all.emplace_back(total).data(), total);
    }
    for (const auto& theirs : all) contributions.push_back(theirs.data());
    std::vector<T> reduced(total), want(total);
    ReduceInOrder(call.dtype, call.reduction, contributions.data(),
                  static_cast<int>(members.size()), reduced.data(), total);
    Cast(call.dtype, dtype, reduced.data(), want.data(), total);
    const std::vector<T>& got = in_place ? in : out;
    EXPECT_TRUE(total == 0 || std::memcmp(got.data(), want.data(), total * sizeof(T)) == 0)
        << "call " << sequence << " of " << total << " elements";
  }

  size_t staging_bytes_ = 4 << 20;
  std::atomic<int> done_{0};
};

TEST_P(Conformance, EveryPairExchangesEverySize) {
  Run([&](int rank, Fabric& fabric) {
    const auto transport = fabric.NewTransport(Everyone());
    EXPECT_EQ(transport->rank(), rank);
    EXPECT_EQ(transport->size(), size());
    for (size_t bytes : {0, 1, 7, 64, 4096, 65537, 1500000}) {
      for (int s = 1; s < size(); ++s) {
        const int to = (rank + s) % size();
        const int from = (rank - s + size()) % size();
        std::vector<uint8_t> out(bytes), in(bytes, 0xee);
        std::vector<uint8_t> want(bytes);
        for (size_t i = 0; i < bytes; ++i) {
          out[i] = static_cast<uint8_t>(i * 31 + rank * 7 + to);
          want[i] = static_cast<uint8_t>(i * 31 + from * 7 + rank);
        }
        const Status status =
            transport->SendRecv({to, ConstBytes(out.data(), bytes), from, Bytes(in.data(), bytes),
                                 Deadline::After(seconds(20))});
        ASSERT_TRUE(status.ok()) << status;
        ASSERT_TRUE(in == want) << bytes << " bytes from rank " << from;
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
  constexpr int kFrames = 60;
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
      const auto frame = [](int i) { return std::string(i * i * 290, 'a' + i % 26); };
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

// With a small staging area, lengths cross slots and go round all of them many times.
TEST_P(Conformance, AnAllreduceHasTheBitsOfTheOneReduction) {
  staging_bytes_ = 4096;
  Run([&](int, Fabric& fabric) {
    const auto transport = fabric.NewTransport(Everyone());
    const std::vector<int> all = Everyone();
    uint64_t sequence = 0;
    for (bool in_place : {false, true}) {
      for (const std::vector<int64_t>& lengths :
           std::vector<std::vector<int64_t>>{{0},
                                             {1},
                                             {7},
                                             {512},
                                             {513},
                                             {1000},
                                             {4097},
                                             {100003},
                                             {3, 0, 1, 2000, 5, 4096, 1}}) {
        ExpectAllreduce<float>(*transport, all, ++sequence, DType::kFloat32, lengths, in_place);
        ExpectAllreduce<double>(*transport, all, ++sequence, DType::kFloat64, lengths, in_place);
        ExpectAllreduce<int32_t>(*transport, all, ++sequence, DType::kInt32, lengths, in_place);
        ExpectAllreduce<uint8_t>(*transport, all, ++sequence, DType::kUint8, lengths, in_place);
        // The bits of small integers are 16-bit floats, too.
        ExpectAllreduce<uint16_t>(*transport, all, ++sequence, DType::kBfloat16, lengths, in_place);
        ExpectAllreduce<uint16_t>(*transport, all, ++sequence, DType::kFloat16, lengths, in_place);
        if (lengths[0] > 5000) continue;  // windows of all kinds have been cast by now
        ExpectAllreduce<float>(*transport, all, ++sequence, DType::kFloat32, lengths, in_place,
                               DType::kFloat16);
        ExpectAllreduce<double>(*transport, all, ++sequence, DType::kFloat64, lengths, in_place,
                                DType::kBfloat16);
      }
    }
  });
}

TEST_P(Conformance, OverlappingSetsAndMessagesKeepTheirOrder) {
  if (size() < 3) return;
  staging_bytes_ = 8192;
  Run([&](int rank, Fabric& fabric) {
    const std::vector<std::vector<int>> sets = {{0, 1}, {1, 2}, {0, 2}, Everyone()};
    std::vector<std::unique_ptr<Transport>> transports;
    const auto is_member = [&](const std::vector<int>& set) {
      return std::find(set.begin(), set.end(), rank) != set.end();
    };
    for (const auto& set : sets) {
      transports.push_back(is_member(set) ? fabric.NewTransport(set) : nullptr);
    }
    for (uint64_t sequence = 1; sequence <= 400; ++sequence) {
      const size_t s = sequence * 7 % sets.size();
      if (transports[s] == nullptr) continue;
      const int64_t length = 1 + static_cast<int64_t>(sequence * 977 % 5000);
      if (sequence % 3 != 0) {
        ExpectAllreduce<float>(*transports[s], sets[s], sequence, DType::kFloat32, {length}, false);
        continue;
      }
      const int n = transports[s]->size();
      const int to = (transports[s]->rank() + 1) % n;
      const int from = (transports[s]->rank() + n - 1) % n;
      std::vector<int> out(length, rank), in(length, -1);
      const Status status =
          transports[s]->SendRecv({to, ConstBytes(out.data(), length * 4), from,
                                   Bytes(in.data(), length * 4), Deadline::After(seconds(20))});
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(in, std::vector<int>(length, sets[s][from]));
    }
  });
}

TEST_P(Conformance, AnAbortEndsAnAllreduce) {
  if (size() < 2) return;
  Run([&](int rank, Fabric& fabric) {
    const auto transport = fabric.NewTransport(Everyone());
    if (rank == 0 || !transport->IsNative(Kind::kAllreduce)) return;  // rank 0 never comes
    std::thread other([&] {
      std::this_thread::sleep_for(milliseconds(20));
      fabric.Abort(Status::PeerLost("rank 7 burned down"));
    });
    std::vector<float> data(3 << 20);  // more than all slots
    CollectiveCall call;
    call.sequence = 1;
    call.kind = Kind::kAllreduce;
    call.dtype = DType::kFloat32;
    auto* const bytes = reinterpret_cast<std::byte*>(data.data());
    call.segments.push_back({bytes, bytes, static_cast<int64_t>(data.size())});
    for (int again = 0; again < 2; ++again) {
      Status status;
      transport->Launch(call, [&](Status outcome) { status = std::move(outcome); });
      EXPECT_EQ(status.code(), Code::kPeerLost) << status;
      EXPECT_NE(status.message().find("burned"), std::string::npos) << status;
    }
    other.join();
  });
}

// The ranks are said to be on three hosts: frames go along the tree, from the first moment.
TEST_P(Conformance, FramesOfTheFirstMomentGoAlongTheTree) {
  std::vector<std::string> hosts;
  for (int r = 0; r < size(); ++r) hosts.push_back(std::string(1, "abc"[r % 3]));
  const Topology topology(hosts);
  // "shm" serves one host; "auto" has shared memory in each.
  const std::string name = transport() == "shm" ? "auto" : transport();
  for (int again = 0; again < 20; ++again) {
    FdTable table;
    Fabrics fabrics = MakeFabrics(name, hosts, &table);
    std::vector<std::thread> threads;
    for (int r = 0; r < size(); ++r) {
      threads.emplace_back([&, r] {
        Fabric& fabric = *fabrics.ranks[r];
        const Status status = fabric.Start(Deadline::After(seconds(20)));
        ASSERT_TRUE(status.ok()) << status;
        const std::vector<int> neighbors = topology.neighbors(r);
        for (int i = 0; i < 3; ++i) {
          for (int peer : neighbors) {
            fabric.control().Send(peer, std::to_string(r) + "." + std::to_string(i));
          }
        }
        std::map<int, int> next;
        for (size_t got = 0; got < 3 * neighbors.size();) {
          const ControlEvent event = fabric.control().WaitAny(Deadline::After(seconds(20)));
          if (event.type == ControlEvent::Type::kWake) continue;
          ASSERT_EQ(event.type, ControlEvent::Type::kFrame) << event.text;
          EXPECT_EQ(event.frame,
                    std::to_string(event.peer) + "." + std::to_string(next[event.peer]++));
          ++got;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST_P(Conformance, ASetOverHostsAndASetInsideOne) {
  if (size() < 4) return;
  std::vector<std::string> hosts;
  for (int r = 0; r < size(); ++r) hosts.push_back(r % 2 == 0 ? "even" : "odd");
  FdTable table;
  RunOn(MakeFabrics(transport() == "shm" ? "auto" : transport(), hosts, &table),
        [&](int rank, Fabric& fabric) {
          std::vector<int> mine;
          for (int r = rank % 2; r < size(); r += 2) mine.push_back(r);
          const auto all = fabric.NewTransport(Everyone());
          const auto inside = fabric.NewTransport(mine);
          EXPECT_EQ(inside->IsNative(Kind::kAllreduce), transport() == "shm");
          EXPECT_FALSE(all->IsNative(Kind::kAllreduce));
          for (uint64_t sequence = 1; sequence <= 20; ++sequence) {
            ExpectAllreduce<float>(sequence % 2 ? *inside : *all, sequence % 2 ? mine : Everyone(),
                                   sequence, DType::kFloat32, {70001}, false);
          }
        });
}

INSTANTIATE_TEST_SUITE_P(Transports, Conformance,
                         testing::Combine(testing::Values("local", "shm", "tcp"),
                                          testing::Values(1, 2, 3, 4, 7)),
                         [](const auto& info) {
                           return std::get<0>(info.param) + std::to_string(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace hvd
