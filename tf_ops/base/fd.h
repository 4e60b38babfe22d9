// Fd: an open file descriptor with one owner; and the table that lets a forked child
// close all of ours.
//
// A data loader that forks would keep our sockets open, and the peers could not see
// this process die.  So every descriptor is entered in the FdTable of the process, and
// the child's fork handler closes them all (runtime/c_api.cc).

#ifndef TF_OPS_BASE_FD_H_
#define TF_OPS_BASE_FD_H_

#include <mutex>
#include <set>
#include <utility>

namespace hvd {

// Threads: any; LockForFork .. UnlockAfterFork bracket a fork.
class FdTable {
 public:
  // Enters what `open` returns, if it is a descriptor.  A fork comes before or after both.
  template <typename Open>
  int Enter(Open open) {
    std::lock_guard<std::mutex> lock(mutex_);
    const int fd = open();
    if (fd >= 0) fds_.insert(fd);
    return fd;
  }
  // Closes it and takes it out.
  void Close(int fd);
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
  // The descriptor that `open` returns, or an invalid one with errno as `open` left it.
  // `table` outlives this object.
  template <typename Open>
  static Fd Make(FdTable* table, Open open) {
    Fd made;
    made.fd_ = table->Enter(open);
    made.table_ = table;
    return made;
  }
  ~Fd() { Close(); }
  Fd(Fd&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), table_(std::exchange(other.table_, nullptr)) {}
  Fd& operator=(Fd&& other) noexcept;
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  void Close();
  // Forgets the descriptor without closing it.
  void Release() { fd_ = -1; }

 private:
  int fd_ = -1;
  FdTable* table_ = nullptr;
};

// An eventfd: rung from any thread, waited on with poll or epoll.
class Doorbell {
 public:
  explicit Doorbell(FdTable* table);
  bool valid() const { return fd_.valid(); }
  int fd() const { return fd_.get(); }
  void Ring();
  // Makes the descriptor unreadable again.
  void Clear();

 private:
  Fd fd_;
};

}  // namespace hvd

#endif  // TF_OPS_BASE_FD_H_
