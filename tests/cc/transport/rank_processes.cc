#include "tests/cc/transport/rank_processes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>
#include <utility>

#include "tests/cc/transport/fabrics.h"
#include "tf_ops/base/strings.h"
#include "tf_ops/transport/registry.h"

namespace hvd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Between what a rank told and its last words.
constexpr char kLastWords = '!';

std::string RunRank(const std::string& transport, const World& world, Listeners listeners,
                    FdTable* table, int tell_fd, int life_fd, const RankProcesses::Body& body) {
  std::unique_ptr<Fabric> fabric;
  Status status = NewFabric({transport, 4 << 20}, world, std::move(listeners), table, &fabric);
  if (status.ok()) status = fabric->Start(Deadline::After(seconds(20)));
  if (!status.ok()) return StrCat("Start: ", status);
  std::atomic<bool> over{false};
  std::thread control([&] {
    while (!over) {
      const ControlEvent event = fabric->control().WaitAny(Deadline::After(seconds(1)));
      if (event.type != ControlEvent::Type::kClosed) continue;
      fabric->Abort(Status::PeerLost(StrCat("rank ", event.peer, ": ", event.text)));
    }
  });
  const std::string wrong = body({*fabric, world.rank, tell_fd, life_fd});
  over = true;
  fabric->control().Wake();
  control.join();
  return wrong;
}

// The listeners were opened by the parent, whose process the items name.
void NameProcesses(const pid_t* pids, World* world) {
  for (size_t r = 0; r < world->endpoints.size(); ++r) {
    for (std::string& item : world->endpoints[r]) {
      if (item.rfind("process:", 0) == 0) {
        item = StrCat(item.substr(0, item.rfind('/') + 1), pids[r]);
      }
    }
  }
}

}  // namespace

void RankProcess::Tell(char event) const {
  [[maybe_unused]] const ssize_t n = write(tell_fd, &event, 1);
}

void RankProcess::AwaitRelease() const {
  char byte;
  [[maybe_unused]] const ssize_t n = read(life_fd, &byte, 1);  // until the parent closes it
}

void RankProcess::ForkHolder() const {
  if (fork() != 0) return;
  AwaitRelease();
  _exit(0);
}

RankProcesses::RankProcesses(const std::string& transport, int size, const Body& body) {
  std::vector<Listeners> listeners;
  std::vector<World> worlds = WorldsOf(size, &table_, &listeners);
  int go[2];
  EXPECT_EQ(pipe2(life_, O_CLOEXEC), 0);
  EXPECT_EQ(pipe2(go, O_CLOEXEC), 0);
  auto* const pids = static_cast<pid_t*>(mmap(nullptr, size * sizeof(pid_t), PROT_READ | PROT_WRITE,
                                              MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  for (int r = 0; r < size; ++r) {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    const pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (int other = 0; other < size; ++other) {
        if (other != r) listeners[other] = {};
      }
      for (const Child& child : children_) close(child.pipe);
      close(life_[1]);
      close(ends[0]);
      close(go[1]);
      char byte;
      [[maybe_unused]] ssize_t n = read(go[0], &byte, 1);  // all have been forked
      NameProcesses(pids, &worlds[r]);
      const std::string wrong =
          RunRank(transport, worlds[r], std::move(listeners[r]), &table_, ends[1], life_[0], body);
      if (!wrong.empty()) n = write(ends[1], (kLastWords + wrong).c_str(), wrong.size() + 1);
      _exit(wrong.empty() ? 0 : 1);
    }
    pids[r] = pid;
    close(ends[1]);
    children_.push_back({pid, ends[0], {}});
  }
  close(go[0]);
  close(go[1]);
  munmap(pids, size * sizeof(pid_t));
}

RankProcesses::~RankProcesses() {
  for (Child& child : children_) {
    if (!child.joined) {
      kill(child.pid, SIGKILL);
      waitpid(child.pid, nullptr, 0);
    }
    close(child.pipe);
  }
  close(life_[0]);
  Release();
}

void RankProcesses::Release() {
  if (life_[1] >= 0) close(life_[1]);
  life_[1] = -1;
}

void RankProcesses::Signal(int rank, int signal) const { kill(children_[rank].pid, signal); }

bool RankProcesses::Listen(Child* child, Deadline deadline) {
  pollfd wait = {child->pipe, POLLIN, 0};
  if (poll(&wait, 1, deadline.poll_ms()) <= 0) return false;
  char buffer[4096];
  const ssize_t n = read(child->pipe, buffer, sizeof(buffer));
  if (n <= 0) return false;
  child->told.append(buffer, n);
  return true;
}

bool RankProcesses::Await(int rank, char event, Clock::duration patience) {
  Child& child = children_[rank];
  const Deadline deadline = Deadline::After(patience);
  for (;;) {
    const size_t at = child.told.substr(0, child.told.find(kLastWords)).find(event);
    if (at != std::string::npos) {
      child.told.erase(at, 1);
      return true;
    }
    if (!Listen(&child, deadline)) return false;
  }
}

std::string RankProcesses::Join(int rank, Clock::duration patience) {
  Child& child = children_[rank];
  const Deadline deadline = Deadline::After(patience);
  int status;
  while (waitpid(child.pid, &status, WNOHANG) == 0) {
    if (deadline.passed()) return StrCat("rank ", rank, " did not end in time");
    std::this_thread::sleep_for(milliseconds(2));
  }
  child.joined = true;
  while (Listen(&child, Deadline(Clock::time_point{}))) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  if (WIFSIGNALED(status)) return StrCat("rank ", rank, ": signal ", WTERMSIG(status));
  return StrCat("rank ", rank, ": ", child.told.substr(child.told.find(kLastWords) + 1));
}

}  // namespace hvd
