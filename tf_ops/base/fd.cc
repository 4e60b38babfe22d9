#include "tf_ops/base/fd.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

namespace hvd {

void FdTable::Close(int fd) {
  std::lock_guard<std::mutex> lock(mutex_);
  fds_.erase(fd);
  close(fd);
}

void FdTable::CloseAllInChild() {
  for (int fd : fds_) close(fd);
  fds_.clear();
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
  if (fd_ >= 0) table_->Close(fd_);
  fd_ = -1;
}

Doorbell::Doorbell(FdTable* table)
    : fd_(Fd::Make(table, [] { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); })) {}

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
