#include "tf_ops/transport/shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include "tf_ops/base/strings.h"
#include "tf_ops/transport/net/socket.h"

namespace hvd {
namespace {

// "HVDSHM" and the version of this layout.
constexpr uint64_t kMagic = 0x3130'4d48'5344'5648;
constexpr size_t kPage = 4096;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

size_t MailboxesAt() { return sizeof(ShmHeader); }
size_t CountersAt(const ShmLayout& l) { return MailboxesAt() + l.ranks * sizeof(Mailbox); }
size_t TagsAt(const ShmLayout& l) { return CountersAt(l) + l.ranks * sizeof(Counter); }
size_t SlotsAt(const ShmLayout& l) {
  return (TagsAt(l) + l.slots * sizeof(SlotTag) + kPage - 1) / kPage * kPage;
}

std::string WithErrno(const std::string& what) { return StrCat(what, ": ", ErrnoText(errno)); }

}  // namespace

ShmLayout ShmLayout::Of(int ranks, size_t staging_bytes) {
  ShmLayout layout;
  layout.ranks = ranks;
  layout.slot_bytes = std::min(kMostSlotBytes, staging_bytes / 2 / kCacheLine * kCacheLine);
  layout.slots = staging_bytes / layout.slot_bytes;
  return layout;
}

size_t ShmLayout::total_bytes() const { return SlotsAt(*this) + slots * slot_bytes; }

int MakeMemfd(size_t bytes) {
  const int fd = memfd_create("horovod", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return -1;
  // All of it now: memory that is missing later would be a SIGBUS.
  int error;
  do {
    error = posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  } while (error == EINTR);
  if (error == 0 && fcntl(fd, F_ADD_SEALS, kSeals) == 0) return fd;
  if (error == 0) error = errno;
  close(fd);
  errno = error;
  return -1;
}

std::string ShmSegment::MapMemory(const ShmLayout& layout, const Fd& fd,
                                  std::unique_ptr<ShmSegment>* segment) {
  const size_t bytes = layout.total_bytes();
  void* const base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (base == MAP_FAILED) return WithErrno("mmap");
  madvise(base, bytes, MADV_DONTFORK);  // a forked child is no rank
  segment->reset(new ShmSegment(layout, static_cast<std::byte*>(base)));
  return {};
}

std::string ShmSegment::Make(const ShmLayout& layout, uint64_t generation, int rank,
                             const MakeMemory& make_memory, FdTable* table, Fd* fd,
                             std::unique_ptr<ShmSegment>* segment) {
  *fd = Fd::Make(table, [&] { return make_memory(layout.total_bytes()); });
  if (!fd->valid()) {
    return WithErrno(StrCat("no memfd of ", layout.total_bytes(), " bytes"));
  }
  std::string obstacle = MapMemory(layout, *fd, segment);
  if (!obstacle.empty()) return obstacle;
  // The memory is zero, which is where all words begin.
  ShmHeader* const header = new ((*segment)->base_) ShmHeader();
  header->magic = kMagic;
  header->generation = generation;
  header->rank = rank;
  header->layout = layout;
  return {};
}

std::string ShmSegment::Map(const ShmLayout& layout, uint64_t generation, int rank, const Fd& fd,
                            std::unique_ptr<ShmSegment>* segment) {
  struct stat info;
  if (fstat(fd.get(), &info) != 0) return WithErrno("fstat");
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) return "its size is not sealed";
  if (static_cast<size_t>(info.st_size) < layout.total_bytes()) {
    return StrCat("it has ", info.st_size, " bytes where ", layout.total_bytes(), " are due");
  }
  std::string obstacle = MapMemory(layout, fd, segment);
  if (!obstacle.empty()) return obstacle;
  const ShmHeader& header = (*segment)->header();
  if (header.magic != kMagic || header.generation != generation || header.rank != rank ||
      !(header.layout == layout)) {
    return StrCat("it is the segment of rank ", header.rank, ", generation ", header.generation,
                  ", with ", header.layout.slots, " slots of ", header.layout.slot_bytes,
                  " bytes; due is rank ", rank, ", generation ", generation, ", ", layout.slots,
                  " slots of ", layout.slot_bytes, " bytes");
  }
  return {};
}

ShmSegment::~ShmSegment() { munmap(base_, layout_.total_bytes()); }

Mailbox& ShmSegment::mailbox(int to) const {
  return reinterpret_cast<Mailbox*>(base_ + MailboxesAt())[to];
}

std::atomic<uint64_t>& ShmSegment::received(int from) const {
  return reinterpret_cast<Counter*>(base_ + CountersAt(layout_))[from].value;
}

SlotTag& ShmSegment::tag(uint64_t slot) const {
  return reinterpret_cast<SlotTag*>(base_ + TagsAt(layout_))[slot];
}

std::byte* ShmSegment::slot(uint64_t slot) const {
  return base_ + SlotsAt(layout_) + slot * layout_.slot_bytes;
}

}  // namespace hvd
