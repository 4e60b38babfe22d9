#include "tf_ops/base/fd.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

namespace hvd {

void FdTable::Add(int fd) {
  std::lock_guard<std::mutex> lock(mutex_);
  fds_.insert(fd);
}

void FdTable::Remove(int fd) {
  std::lock_guard<std::mutex> lock(mutex_);
  fds_.erase(fd);
}

void FdTable::CloseAllInChild() {
  for (int fd : fds_) close(fd);
  fds_.clear();
}

Fd::Fd(int fd, FdTable* table) : fd_(fd), table_(table) {
  if (fd_ >= 0 && table_ != nullptr) table_->Add(fd_);
}

Fd& Fd::operator=(Fd&& other) noexcept {
  if (this != &other) {
    Close();
    fd_ = std::exchange(other.fd_, -1);
    table_ = std::exchange(other.table_, nullptr);
  }
  return *this;
}

void Fd::Close() {
  if (fd_ < 0) return;
  // Out of the table first: a number that is closed may at once belong to others.
  if (table_ != nullptr) table_->Remove(fd_);
  close(fd_);
  fd_ = -1;
}

Doorbell::Doorbell(FdTable* table) : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), table) {}

void Doorbell::Ring() {
  const uint64_t one = 1;
  // EAGAIN: the counter is full, so the bell is ringing already.
  [[maybe_unused]] ssize_t written = write(fd_.get(), &one, sizeof(one));
}

void Doorbell::Clear() {
  uint64_t count;
  [[maybe_unused]] ssize_t got = read(fd_.get(), &count, sizeof(count));
}

}  // namespace hvd
