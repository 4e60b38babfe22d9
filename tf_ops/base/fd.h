// Fd: an open file descriptor with one owner; and the table that lets a forked child
// close all of ours.
//
// A data loader that forks would keep our sockets open, and the peers could not see
// this process die.  So every descriptor is entered in the FdTable of its Runtime,
// and the child's fork handler closes them all (runtime/c_api.cc).

#ifndef TF_OPS_BASE_FD_H_
#define TF_OPS_BASE_FD_H_

#include <mutex>
#include <set>
#include <utility>

namespace hvd {

// Threads: any; LockForFork .. UnlockAfterFork bracket a fork.
class FdTable {
 public:
  void Add(int fd);
  void Remove(int fd);
  void LockForFork() { mutex_.lock(); }
  void UnlockAfterFork() { mutex_.unlock(); }
  // REQUIRES: LockForFork() was called, and this is the child.
  void CloseAllInChild();

 private:
  std::mutex mutex_;
  std::set<int> fds_;
};

class Fd {
 public:
  Fd() = default;
  // `table` may be null; otherwise it outlives this object.
  Fd(int fd, FdTable* table);
  ~Fd() { Close(); }
  Fd(Fd&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), table_(std::exchange(other.table_, nullptr)) {}
  Fd& operator=(Fd&& other) noexcept;
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  void Close();

 private:
  int fd_ = -1;
  FdTable* table_ = nullptr;
};

// An eventfd: rung from any thread, waited on with poll or epoll.
class Doorbell {
 public:
  explicit Doorbell(FdTable* table);
  int fd() const { return fd_.get(); }
  void Ring();
  // Makes the descriptor unreadable again.
  void Clear();

 private:
  Fd fd_;
};

}  // namespace hvd

#endif  // TF_OPS_BASE_FD_H_
