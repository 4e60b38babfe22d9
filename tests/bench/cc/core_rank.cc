// One rank that uses the core as an adapter does, without a framework.
//
// Usage: core_rank RANK SIZE.  All ranks are on this host.  Whoever starts them talks to each by
// lines, and hands the ranks' addresses round:
//
//   rank: endpoints TEXT
//         start NONCE SECRET TEXT...            the endpoints of all ranks, in order
//   rank: ready
//         time KIND DTYPE ELEMENTS TENSORS SEED ITERATIONS
//   rank: seconds MEDIAN                        of one iteration
//         repeat ...                            the same, without a clock in the loop
//   rank: repeated
//
// KIND, DTYPE and SEED are numbers as in OperationSpec; ITERATIONS >= 1.  `wrong TEXT` in place of
// an answer: a result is not right, before or after the iterations; the rank goes on.  `failed
// TEXT`: it ends.  It also ends, in order, at the end of its input.

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/bench/cc/median.h"
#include "tests/bench/cc/operation.h"
#include "tf_ops/runtime/c_api.h"

namespace hvd_bench {
namespace {

constexpr double kStartSeconds = 60;
constexpr double kEndSeconds = 60;
constexpr int kWarmUps = 2;  // after the first, which is negotiated in full

void Answer(const std::string& line) { std::cout << line << std::endl; }

// The core may still use buffers of ours: nothing is freed, and to the others the rank is lost.
[[noreturn]] void Fail(const std::string& why) {
  Answer("failed " + why);
  _exit(1);
}

void Check(int code, const char* what) {
  if (code != HVD_OK) Fail(std::string(what) + ": " + hvd_last_error());
}

void MustRun(Operation* operation) {
  const std::string failure = operation->Run();
  if (!failure.empty()) Fail(failure);
}

void Start(int rank, int size) {
  // A rank alone opens no socket.
  std::vector<char> endpoints(8192);
  if (size > 1) Check(hvd_listen(1, endpoints.data(), endpoints.size()), "hvd_listen");
  Answer(std::string("endpoints ") + endpoints.data());

  std::string line, word, nonce, secret;
  std::getline(std::cin, line);
  std::istringstream words(line);
  words >> word >> nonce >> secret;
  if (word != "start" || secret.empty()) Fail("expected 'start NONCE SECRET ...', got: " + line);
  std::vector<std::string> all(size);
  for (std::string& of_rank : all) words >> of_rank;
  std::vector<const char*> pointers, hosts(size, "localhost");
  for (const std::string& of_rank : all) pointers.push_back(of_rank.c_str());

  hvd_world world = {};
  world.rank = world.local_rank = rank;
  world.size = world.local_size = size;
  world.cross_size = 1;
  world.homogeneous = 1;
  world.generation = 1;
  world.nonce = nonce.c_str();
  world.secret = reinterpret_cast<const uint8_t*>(secret.data());
  world.secret_size = secret.size();
  world.hosts = hosts.data();
  world.endpoints = pointers.data();
  world.first_set_id = 1;
  world.start_timeout_s = kStartSeconds;
  Check(hvd_check_config(), "hvd_check_config");
  Check(hvd_start(&world), "hvd_start");
  Check(hvd_wait_ready(kStartSeconds), "hvd_wait_ready");
  Answer("ready");
}

double MedianSeconds(Operation* operation, int iterations) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> samples_s;
  for (int i = 0; i < iterations; ++i) {
    if (i == iterations - 1) operation->Spoil();  // so that a timed iteration is checked
    const auto begin = Clock::now();
    MustRun(operation);
    samples_s.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return Median(std::move(samples_s));
}

void Repeat(Operation* operation, int iterations) {
  for (int i = 0; i < iterations; ++i) {
    if (i == iterations - 1) operation->Spoil();
    MustRun(operation);
  }
}

// Carries out one line and answers it.
void Obey(const std::string& line, int rank, int size) {
  OperationSpec spec;
  spec.rank = rank;
  spec.size = size;
  std::string command;
  int kind, dtype, iterations;
  std::istringstream words(line);
  words >> command >> kind >> dtype >> spec.elements >> spec.tensors >> spec.seed >> iterations;
  const bool timed = command == "time";
  if (!words || (!timed && command != "repeat") || iterations < 1) {
    Fail("expected 'time|repeat KIND DTYPE ELEMENTS TENSORS SEED ITERATIONS', got: " + line);
  }
  spec.kind = static_cast<hvd_kind>(kind);
  spec.dtype = static_cast<hvd_dtype>(dtype);

  Operation operation(spec);
  operation.Spoil();
  MustRun(&operation);
  const std::string wrong_before = operation.FirstWrong();
  for (int i = 0; i < kWarmUps; ++i) MustRun(&operation);
  double median_s = 0;
  if (timed) {
    median_s = MedianSeconds(&operation, iterations);
  } else {
    Repeat(&operation, iterations);
  }
  const std::string wrong_after = operation.FirstWrong();

  std::ostringstream answer;
  answer.precision(9);
  if (!wrong_before.empty() || !wrong_after.empty()) {
    answer << "wrong " << (wrong_before.empty() ? wrong_after : wrong_before);
  } else if (timed) {
    answer << "seconds " << median_s;
  } else {
    answer << "repeated";
  }
  Answer(answer.str());
}

int Main(int argc, char** argv) {
  const int rank = argc == 3 ? std::atoi(argv[1]) : -1;
  const int size = argc == 3 ? std::atoi(argv[2]) : 0;
  if (rank < 0 || rank >= size || size > kMostRanks) {
    std::cerr << "usage: core_rank RANK SIZE, with RANK < SIZE <= " << kMostRanks << std::endl;
    return 2;
  }
  Start(rank, size);
  std::string line;
  while (std::getline(std::cin, line)) Obey(line, rank, size);
  Check(hvd_shutdown(0, kEndSeconds), "hvd_shutdown");
  return 0;
}

}  // namespace
}  // namespace hvd_bench

int main(int argc, char** argv) { return hvd_bench::Main(argc, argv); }
