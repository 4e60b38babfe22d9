// N ranks as N Runtimes in one process, over every transport: requests in, results out.

#include "tf_ops/runtime/runtime.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <numeric>
#include <random>
#include <thread>

#include "tests/cc/transport/fabrics.h"

namespace hvd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto kPatience = seconds(60);

// One request in flight, and its outcome.
template <typename T>
struct Op {
  std::vector<T> in;
  std::vector<T> out;
  std::vector<int64_t> out_shape;
  std::promise<Status> promise;
  std::future<Status> outcome = promise.get_future();
  uint64_t id = 0;
  Status enqueued;

  Status Wait() {
    if (!enqueued.ok()) return enqueued;
    if (outcome.wait_for(kPatience) != std::future_status::ready) {
      return Status::Internal("no outcome within the patience of the test");
    }
    return outcome.get();
  }
};

template <typename T>
constexpr DType kDTypeOf = std::is_same_v<T, float>    ? DType::kFloat32
                           : std::is_same_v<T, double> ? DType::kFloat64
                                                       : DType::kInt32;

template <typename T>
std::unique_ptr<Op<T>> Enqueue(Runtime& runtime, Signature s, std::vector<T> in) {
  auto op = std::make_unique<Op<T>>();
  op->in = std::move(in);
  s.dtype = kDTypeOf<T>;
  if (s.shapes.empty() && s.kind != Kind::kBarrier) {
    s.shapes = {{static_cast<int64_t>(op->in.size())}};
  }
  auto request = std::make_shared<Request>();
  request->signature = s;
  request->buffers.assign(s.shapes.size(), {op->in.data(), nullptr});
  Op<T>* const raw = op.get();
  request->allocate = [raw](size_t, const std::vector<int64_t>& shape, void** output) {
    raw->out_shape = shape;
    raw->out.resize(
        std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<int64_t>()));
    *output = raw->out.data();
    return Status::Ok();
  };
  request->done = [raw](const Status& status) { raw->promise.set_value(status); };
  op->enqueued = runtime.Enqueue(std::move(request), &op->id);
  return op;
}

Signature Allreduce(const std::string& name, ReduceOp op = ReduceOp::kSum) {
  Signature s;
  s.name = name;
  s.kind = Kind::kAllreduce;
  s.op = op;
  return s;
}

Signature Of(Kind kind, const std::string& name, int root = 0) {
  Signature s;
  s.name = name;
  s.kind = kind;
  s.root = root;
  return s;
}

// A transport, and how many ranks are on each host.
class RuntimeTest : public testing::TestWithParam<std::tuple<std::string, std::vector<int>>> {
 protected:
  std::string transport() const { return std::get<0>(GetParam()); }
  int size() const { return static_cast<int>(Hosts().size()); }

  // The host of each rank: ranks of one host do not follow each other.
  static std::vector<std::string> HostsOf(std::vector<int> left) {
    std::vector<std::string> hosts;
    for (bool more = true; more;) {
      more = false;
      for (size_t h = 0; h < left.size(); ++h) {
        if (left[h] == 0) continue;
        --left[h];
        more = true;
        hosts.push_back("host" + std::to_string(h));
      }
    }
    return hosts;
  }
  std::vector<std::string> Hosts() const { return HostsOf(std::get<1>(GetParam())); }

  // Runs `body` as every rank of a job, and shuts each rank down with `exit_status`.
  void Run(
      const std::function<void(int rank, Runtime& runtime)>& body,
      const std::function<int(int rank)>& exit_status = [](int) { return 0; }) {
    FdTable table;
    Fabrics fabrics = MakeFabrics(transport(), Hosts(), &table);
    if (size() > 2) {
      for (World& world : fabrics.worlds) world.process_sets.push_back({1, 2});
    }
    std::vector<std::thread> threads;
    for (int r = 0; r < size(); ++r) {
      threads.emplace_back([&, r] {
        Runtime runtime(fabrics.worlds[r], config_, std::move(fabrics.ranks[r]));
        runtime.Start();
        Status status;
        ASSERT_TRUE(runtime.WaitReady(Deadline::After(kPatience), &status));
        ASSERT_TRUE(status.ok()) << status;
        body(r, runtime);
        EXPECT_TRUE(runtime.Shutdown(exit_status(r)).ok());
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  // Proves that the job still works.
  static void ExpectWorks(Runtime& runtime, int size, const std::string& name = "still works") {
    auto op = Enqueue<float>(runtime, Allreduce(name), {1, 2});
    const Status status = op->Wait();
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(op->out, std::vector<float>({1.0f * size, 2.0f * size}));
  }

  Config config_;
};

TEST_P(RuntimeTest, SumsEverySizeOverEveryBoundary) {
  config_.staging_bytes = 4096;  // small blocks, so that small tensors cross them
  Run([&](int rank, Runtime& runtime) {
    for (int64_t n : {0, 1, 2, 3, 5, 64, 1023, 1025, 40000}) {
      std::vector<double> in(n);
      for (int64_t i = 0; i < n; ++i) in[i] = static_cast<double>(i + 1) * (rank + 1);
      auto op = Enqueue<double>(runtime, Allreduce("n" + std::to_string(n)), in);
      ASSERT_TRUE(op->Wait().ok());
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(op->out[i], static_cast<double>(i + 1) * size() * (size() + 1) / 2);
      }
    }
  });
}

TEST_P(RuntimeTest, AverageAndFactorsAreTheCollectives) {
  Run([&](int rank, Runtime& runtime) {
    Signature s = Allreduce("a", ReduceOp::kAverage);
    s.prescale = 2;
    s.postscale = 0.5;
    auto op = Enqueue<float>(runtime, s, {float(rank), 4});
    ASSERT_TRUE(op->Wait().ok());
    EXPECT_FLOAT_EQ(op->out[0], (size() - 1) / 2.0f);
    EXPECT_EQ(op->out[1], 4);
  });
}

TEST_P(RuntimeTest, GathersUnevenRows) {
  Run([&](int rank, Runtime& runtime) {
    Signature s = Of(Kind::kAllgather, "g");
    s.shapes = {{rank, 2}};  // rank 0 gives no row
    auto op = Enqueue<int32_t>(runtime, s, std::vector<int32_t>(rank * 2, rank));
    ASSERT_TRUE(op->Wait().ok());
    EXPECT_EQ(op->out_shape, std::vector<int64_t>({size() * (size() - 1) / 2, 2}));
    std::vector<int32_t> want;
    for (int r = 0; r < size(); ++r) want.insert(want.end(), r * 2, r);
    EXPECT_EQ(op->out, want);
  });
}

TEST_P(RuntimeTest, BroadcastsFromEveryRoot) {
  Run([&](int rank, Runtime& runtime) {
    for (int root = 0; root < size(); ++root) {
      auto op = Enqueue<float>(runtime, Of(Kind::kBroadcast, "b", root),
                               std::vector<float>(100000, static_cast<float>(rank)));
      ASSERT_TRUE(op->Wait().ok());
      EXPECT_EQ(op->out, std::vector<float>(100000, static_cast<float>(root)));
    }
  });
}

TEST_P(RuntimeTest, NobodyPassesABarrierBeforeAllHaveCome) {
  std::atomic<int> came{0};
  Run([&](int rank, Runtime& runtime) {
    std::this_thread::sleep_for(milliseconds(5 * rank));
    ++came;
    auto op = Enqueue<float>(runtime, Of(Kind::kBarrier, "barrier"), {});
    ASSERT_TRUE(op->Wait().ok());
    EXPECT_EQ(came, size());
  });
}

TEST_P(RuntimeTest, AnyOrderAndFusionGiveTheSameBits) {
  constexpr int kTensors = 120;
  std::vector<std::vector<std::vector<float>>> results(2);
  for (int round = 0; round < 2; ++round) {
    config_.fusion_threshold_bytes = round == 0 ? 0 : 1 << 16;
    results[round].resize(kTensors);
    Run([&](int rank, Runtime& runtime) {
      std::vector<int> order(kTensors);
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), std::mt19937(rank * 2 + round));
      std::vector<std::unique_ptr<Op<float>>> ops(kTensors);
      for (int t : order) {
        std::mt19937 random(rank * kTensors + t);
        std::vector<float> in(1 + t * 7);
        for (float& x : in) x = std::normal_distribution<float>()(random);
        ops[t] = Enqueue<float>(runtime, Allreduce("t" + std::to_string(t)), in);
      }
      for (int t = 0; t < kTensors; ++t) {
        ASSERT_TRUE(ops[t]->Wait().ok());
        if (rank == 0) results[round][t] = ops[t]->out;
      }
    });
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST_P(RuntimeTest, ANameMayComeAgainFromDone) {
  Run([&](int, Runtime& runtime) {
    for (int i = 0; i < 2000; ++i) {
      auto op = Enqueue<float>(runtime, Allreduce("again"), {float(i)});
      ASSERT_TRUE(op->Wait().ok());
      ASSERT_EQ(op->out[0], float(i) * size());
    }
  });
}

TEST_P(RuntimeTest, RanksThatDisagreeGetTheSameErrorAndGoOn) {
  if (size() < 2) return;
  Run([&](int rank, Runtime& runtime) {
    auto op = Enqueue<float>(runtime, Allreduce("x"), std::vector<float>(2 + (rank == 1)));
    Status status = op->Wait();
    EXPECT_EQ(status.code(), Code::kFailedPrecondition);
    EXPECT_EQ(status.message(),
              "allreduce 'x': rank 1 sent shape [3], rank 0 sent [2]; shapes must match on "
              "all ranks");
    ExpectWorks(runtime, size(), "x");
    auto root = Enqueue<float>(runtime, Of(Kind::kBroadcast, "b", rank == 1), {1});
    status = root->Wait();
    EXPECT_EQ(status.code(), Code::kFailedPrecondition);
    EXPECT_NE(status.message().find("rank 1 sent root_rank 1, rank 0 sent 0"), std::string::npos)
        << status;
    ExpectWorks(runtime, size());
  });
}

TEST_P(RuntimeTest, ALocalErrorReachesTheOthers) {
  if (size() < 2) return;
  Run([&](int rank, Runtime& runtime) {
    // Rank 1 asks for what cannot be; the others would wait for it for ever.
    auto op = Enqueue<float>(runtime, Of(Kind::kBroadcast, "b", rank == 1 ? 77 : 0), {1});
    const Status status = op->Wait();
    EXPECT_EQ(status.code(), rank == 1 ? Code::kInvalidArgument : Code::kFailedPrecondition);
    EXPECT_NE(status.message().find("root_rank 77"), std::string::npos) << status;
    if (rank != 1) {
      EXPECT_NE(status.message().find("rank 1"), std::string::npos) << status;
    }
    ExpectWorks(runtime, size(), "b");
  });
}

TEST_P(RuntimeTest, ANameTwiceInFlightFailsByName) {
  Run([&](int rank, Runtime& runtime) {
    auto first = Enqueue<float>(runtime, Allreduce("first"), {1});
    if (size() > 1 && rank == 0) {
      auto second = Enqueue<float>(runtime, Allreduce("late"), {1});
      auto third = Enqueue<float>(runtime, Allreduce("late"), {1});
      EXPECT_EQ(third->enqueued.code(), Code::kInvalidArgument);
      EXPECT_NE(third->enqueued.message().find("'late'"), std::string::npos);
      auto go = Enqueue<float>(runtime, Of(Kind::kBarrier, "go"), {});
      EXPECT_TRUE(go->Wait().ok());
      EXPECT_TRUE(second->Wait().ok());
    } else if (size() > 1) {
      auto go = Enqueue<float>(runtime, Of(Kind::kBarrier, "go"), {});
      EXPECT_TRUE(go->Wait().ok());
      EXPECT_TRUE(Enqueue<float>(runtime, Allreduce("late"), {1})->Wait().ok());
    }
    EXPECT_TRUE(first->Wait().ok());
  });
}

TEST_P(RuntimeTest, ACancelledRequestIsWithdrawnEverywhere) {
  if (size() < 2) return;
  Run([&](int rank, Runtime& runtime) {
    if (rank == 1) {
      auto op = Enqueue<float>(runtime, Allreduce("x"), {1});
      std::this_thread::sleep_for(milliseconds(20));
      runtime.Cancel(op->id);
      EXPECT_EQ(op->Wait().code(), Code::kCancelled);
    } else {
      // Rank 0 comes long after the withdrawal, the others before it.
      std::this_thread::sleep_for(milliseconds(rank == 0 ? 100 : 0));
      const Status status = Enqueue<float>(runtime, Allreduce("x"), {1})->Wait();
      EXPECT_EQ(status.code(), Code::kFailedPrecondition) << status;
      EXPECT_NE(status.message().find("rank 1"), std::string::npos) << status;
    }
    ExpectWorks(runtime, size(), "x");
  });
}

TEST_P(RuntimeTest, CancelRacesWithEverything) {
  Run([&](int rank, Runtime& runtime) {
    std::mt19937 random(rank);
    for (int i = 0; i < 300; ++i) {
      auto op = Enqueue<float>(runtime, Allreduce("x" + std::to_string(i)), {1});
      if (rank == i % size()) {
        if (random() % 2) std::this_thread::yield();
        runtime.Cancel(op->id);
      }
      const Code code = op->Wait().code();
      EXPECT_TRUE(code == Code::kOk || code == Code::kCancelled ||
                  code == Code::kFailedPrecondition);
    }
    ExpectWorks(runtime, size());
  });
}

TEST_P(RuntimeTest, ARankOutsideTheSetIsToldAtOnce) {
  if (size() < 3) return;
  Run([&](int rank, Runtime& runtime) {
    Signature s = Allreduce("x");
    s.process_set = 1;
    auto op = Enqueue<float>(runtime, s, {float(rank)});
    if (rank == 1 || rank == 2) {
      ASSERT_TRUE(op->Wait().ok());
      EXPECT_EQ(op->out[0], 3);
    } else {
      EXPECT_EQ(op->enqueued.code(), Code::kInvalidArgument);
    }
    s.process_set = 99;
    EXPECT_EQ(Enqueue<float>(runtime, s, {1})->enqueued.code(), Code::kInvalidArgument);
    ExpectWorks(runtime, size());
  });
}

TEST_P(RuntimeTest, ARankThatEndsInOrderEndsWhatNeedsIt) {
  if (size() < 2) return;
  const int leaver = size() - 1;
  Run([&](int rank, Runtime& runtime) {
    ExpectWorks(runtime, size());
    if (rank == leaver) return;
    Signature gradient = Allreduce("gradient");
    gradient.gradient = true;
    auto first = Enqueue<float>(runtime, gradient, {1});
    auto second = Enqueue<float>(runtime, Allreduce("other"), {1});
    EXPECT_EQ(first->Wait().code(), Code::kOutOfRange);
    const Status status = second->Wait();
    EXPECT_EQ(status.code(), Code::kShutdown) << status;
    EXPECT_NE(status.message().find("rank "), std::string::npos);
    // Also what comes later.
    EXPECT_EQ(Enqueue<float>(runtime, Allreduce("later"), {1})->Wait().code(), Code::kShutdown);
  });
}

TEST_P(RuntimeTest, ARankThatEndsBadlyTakesTheJobDown) {
  if (size() < 2) return;
  Run(
      [&](int rank, Runtime& runtime) {
        ExpectWorks(runtime, size());
        if (rank == 1) {
          // The others may still be in the last collective.
          std::this_thread::sleep_for(milliseconds(200));
          return;
        }
        const Status status = Enqueue<float>(runtime, Allreduce("x"), {1})->Wait();
        EXPECT_EQ(status.code(), Code::kPeerLost) << status;
        EXPECT_NE(status.message().find("rank 1"), std::string::npos) << status;
        EXPECT_NE(status.message().find("exit status 3"), std::string::npos) << status;
        EXPECT_EQ(runtime.failure().code(), Code::kPeerLost);
      },
      [](int rank) { return rank == 1 ? 3 : 0; });
}

TEST_P(RuntimeTest, NamesThatNeverMatchFailOnAllRanks) {
  if (size() < 2) return;
  config_.mismatch_time_s = 0.3;
  Run([&](int rank, Runtime& runtime) {
    const std::string name = "only on rank " + std::to_string(rank);
    const Status status = Enqueue<float>(runtime, Allreduce(name), {1})->Wait();
    EXPECT_EQ(status.code(), Code::kFailedPrecondition) << status;
    EXPECT_NE(status.message().find("'only on rank 0'"), std::string::npos) << status;
    EXPECT_NE(status.message().find("'only on rank 1'"), std::string::npos) << status;
    ExpectWorks(runtime, size());
  });
}

TEST_P(RuntimeTest, ShutdownFromDoneIsRefused) {
  Run([&](int, Runtime& runtime) {
    std::promise<Status> inner;
    auto request = std::make_shared<Request>();
    request->signature = Of(Kind::kBarrier, "b");
    request->done = [&](const Status&) { inner.set_value(runtime.Shutdown(0)); };
    uint64_t id;
    ASSERT_TRUE(runtime.Enqueue(request, &id).ok());
    EXPECT_EQ(inner.get_future().get().code(), Code::kFailedPrecondition);
  });
}

TEST_P(RuntimeTest, ThreadsMayEnqueueWhileAnotherShutsDown) {
  Run([&](int, Runtime& runtime) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0;; ++i) {
          const std::string name = std::to_string(t) + "." + std::to_string(i);
          if (!Enqueue<float>(runtime, Allreduce(name), {1})->Wait().ok()) break;
        }
      });
    }
    std::this_thread::sleep_for(milliseconds(30));
    EXPECT_TRUE(runtime.Shutdown(0).ok());
    for (std::thread& thread : threads) thread.join();
  });
}

TEST_P(RuntimeTest, ManyGenerationsInOneProcess) {
  for (int i = 0; i < 20; ++i) {
    Run([&](int, Runtime& runtime) { ExpectWorks(runtime, size()); });
  }
}

using Case = std::tuple<std::string, std::vector<int>>;

INSTANTIATE_TEST_SUITE_P(Transports, RuntimeTest,
                         testing::Values(Case{"local", {1}}, Case{"local", {2}}, Case{"local", {3}},
                                         Case{"local", {2, 2}}, Case{"local", {2, 1, 3}},
                                         Case{"tcp", {2}}, Case{"tcp", {3}}, Case{"tcp", {2, 2}},
                                         Case{"shm", {2}}, Case{"shm", {3}}, Case{"shm", {4}},
                                         Case{"auto", {1, 1}}, Case{"auto", {2, 2}}),
                         [](const auto& info) {
                           std::string name = std::get<0>(info.param);
                           for (int ranks : std::get<1>(info.param))
                             name += "_" + std::to_string(ranks);
                           return name;
                         });

}  // namespace
}  // namespace hvd
