// Views of memory that somebody else owns.

#ifndef TF_OPS_BASE_BYTES_H_
#define TF_OPS_BASE_BYTES_H_

#include <cstddef>

namespace hvd {

struct Bytes {
  std::byte* data = nullptr;
  size_t size = 0;

  Bytes() = default;
  Bytes(void* d, size_t n) : data(static_cast<std::byte*>(d)), size(n) {}
  bool empty() const { return size == 0; }
  // REQUIRES: offset + n <= size.
  Bytes sub(size_t offset, size_t n) const { return {data + offset, n}; }
};

struct ConstBytes {
  const std::byte* data = nullptr;
  size_t size = 0;

  ConstBytes() = default;
  ConstBytes(const void* d, size_t n) : data(static_cast<const std::byte*>(d)), size(n) {}
  ConstBytes(Bytes b) : data(b.data), size(b.size) {}  // NOLINT: as span does
  bool empty() const { return size == 0; }
  // REQUIRES: offset + n <= size.
  ConstBytes sub(size_t offset, size_t n) const { return {data + offset, n}; }
};

}  // namespace hvd

#endif  // TF_OPS_BASE_BYTES_H_
