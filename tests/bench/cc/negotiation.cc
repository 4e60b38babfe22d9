// What negotiation costs at scale: the real control plane of up to 4,096 ranks, in one thread and
// without sockets.
//
//   negotiation [TENSORS [STEPS [MOST_RANKS]]]
//
// In each step every rank brings the same tensors, in an order of its own.  The first step
// announces them in full, the later ones by bits.  Frames are delivered at once, and each rank
// takes all that has come in one turn: what batching in real time adds to frames, it takes off the
// CPU time of each.  CPU time is that of this machine, sockets not included.

#include <malloc.h>
#include <sys/resource.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/cc/coordinator/simulated_rank.h"

namespace hvd {
namespace {

double CpuUs() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

// What one rank has done.
struct Cost {
  double cpu_us = 0;
  uint64_t frames = 0;  // sent and received
  uint64_t bytes = 0;
};

class Job {
 public:
  Job(int ranks, int hosts, int tensors) : tensors_(tensors), mail_(ranks), costs_(ranks) {
    World world;
    world.size = ranks;
    for (int r = 0; r < ranks; ++r) world.hosts.push_back(StrCat("host", r / (ranks / hosts)));
    world.process_sets.resize(1);
    for (int r = 0; r < ranks; ++r) world.process_sets[0].push_back(r);
    const size_t before = mallinfo2().uordblks;
    for (int r = 0; r < ranks; ++r) {
      ranks_.push_back(std::make_unique<SimulatedRank>());
      ranks_[r]->Begin(world, r, config_, &mail_, now_);
    }
    bytes_per_rank_ = (mallinfo2().uordblks - before) / ranks;
  }

  // False: not all tensors came through.
  bool Step() {
    const int n = static_cast<int>(ranks_.size());
    left_ = static_cast<int64_t>(n) * tensors_;
    for (int r = 0; r < n; ++r) {
      const double begin = CpuUs();
      for (int t = 0; t < tensors_; ++t) Add(r, (t + r) % tensors_);
      costs_[r].cpu_us += CpuUs() - begin;
    }
    // Up the tree, then down again, until nothing moves.
    for (bool moves = true; moves;) {
      moves = false;
      for (int r = n - 1; r >= 0; --r) moves = Turn(r) || moves;
      for (int r = 0; r < n; ++r) moves = Turn(r) || moves;
    }
    return left_ == 0;
  }

  std::vector<Cost> TakeCosts() { return std::exchange(costs_, std::vector<Cost>(ranks_.size())); }
  size_t bytes_per_rank() const { return bytes_per_rank_; }

 private:
  void Add(int r, int tensor) {
    auto request = std::make_shared<Request>();
    request->signature.name = StrCat("gradients/layer", tensor, "/HorovodAllreduce");
    request->signature.kind = Kind::kAllreduce;
    request->signature.dtype = DType::kFloat32;
    request->signature.shapes = {{256, 256}};
    request->buffers.resize(1);
    request->done = [this](const Status& status) { left_ -= status.ok(); };
    uint64_t id;
    if (!ranks_[r]->queue->Add(std::move(request), &id).ok()) std::abort();
  }

  bool Turn(int r) {
    std::vector<ControlEvent> events;
    if (std::exchange(mail_[r].bell, false)) {
      events.push_back({ControlEvent::Type::kWake, r, {}, {}});
    }
    for (auto& [peer, queue] : mail_[r].from) {
      for (ControlEvent& event : queue) {
        Count(r, event.frame.size());
        Count(peer, event.frame.size());
        events.push_back(std::move(event));
      }
      queue.clear();
    }
    SimulatedRank& rank = *ranks_[r];
    if (events.empty() && rank.runner.posted.empty()) return false;
    const double begin = CpuUs();
    now_ += std::chrono::microseconds(1);
    rank.loop->Turn(events, now_);
    while (!rank.runner.posted.empty()) {
      const SimulatedRunner::Work work = std::move(rank.runner.posted.front());
      rank.runner.posted.pop_front();
      for (const auto& request : work.requests) rank.queue->Finish(request, work.response.status);
      rank.loop->OnProgress();
    }
    costs_[r].cpu_us += CpuUs() - begin;
    return true;
  }

  void Count(int r, size_t bytes) {
    ++costs_[r].frames;
    costs_[r].bytes += bytes;
  }

  const int tensors_;
  Config config_;
  Clock::time_point now_{std::chrono::seconds(1000)};
  std::vector<Mail> mail_;
  std::vector<Cost> costs_;
  std::vector<std::unique_ptr<SimulatedRank>> ranks_;
  size_t bytes_per_rank_ = 0;
  int64_t left_ = 0;  // tensors that have not come through in this step
};

// Per step, of rank 0 and of the busiest other rank in each column.
std::string Row(const std::vector<Cost>& costs, int steps) {
  Cost other;
  for (size_t r = 1; r < costs.size(); ++r) {
    other.cpu_us = std::max(other.cpu_us, costs[r].cpu_us);
    other.frames = std::max(other.frames, costs[r].frames);
    other.bytes = std::max(other.bytes, costs[r].bytes);
  }
  std::string row;
  for (const Cost& cost : {costs[0], other}) {
    char text[100];
    std::snprintf(text, sizeof(text), " %.1f | %.0f | %.0f |",
                  static_cast<double>(cost.frames) / steps, static_cast<double>(cost.bytes) / steps,
                  cost.cpu_us / steps);
    row += text;
  }
  return row;
}

int Main(int tensors, int steps, int most_ranks) {
  struct Size {
    int ranks, hosts;
  };
  constexpr Size kSizes[] = {{2, 1},    {4, 1},    {8, 1},      {16, 2},     {64, 8},
                             {256, 32}, {512, 64}, {1024, 128}, {2048, 256}, {4096, 512}};
  std::printf("%d tensors; frames (sent and received), bytes and CPU time in us per step\n\n",
              tensors);
  std::printf(
      "| ranks | hosts | step | rank 0: frames | bytes | us | busiest other: frames | bytes | us "
      "| KiB per rank |\n|---|---|---|---|---|---|---|---|---|---|\n");
  for (const auto [ranks, hosts] : kSizes) {
    if (ranks > most_ranks) break;
    Job job(ranks, hosts, tensors);
    const auto print = [&](const char* step, int n) {
      std::printf("| %d | %d | %s |%s %zu |\n", ranks, hosts, step, Row(job.TakeCosts(), n).c_str(),
                  job.bytes_per_rank() >> 10);
      std::fflush(stdout);
    };
    if (!job.Step()) return 1;
    print("first", 1);
    if (!job.Step()) return 1;
    job.TakeCosts();
    for (int i = 0; i < steps; ++i) {
      if (!job.Step()) return 1;
    }
    print("steady", steps);
  }
  return 0;
}

}  // namespace
}  // namespace hvd

int main(int argc, char** argv) {
  const int tensors = argc > 1 ? std::atoi(argv[1]) : 161;  // of ResNet-50
  const int steps = argc > 2 ? std::atoi(argv[2]) : 5;
  const int most_ranks = argc > 3 ? std::atoi(argv[3]) : 4096;
  if (argc > 4 || tensors < 1 || steps < 1 || most_ranks < 2) {
    std::fprintf(stderr, "usage: negotiation [TENSORS [STEPS [MOST_RANKS]]]\n");
    return 2;
  }
  return hvd::Main(tensors, steps, most_ranks);
}
