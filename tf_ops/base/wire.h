// WireWriter and WireReader: little-endian fields in a frame.
//
// A reader never believes a length: every field is checked against what is left of
// the frame before anything is allocated, and after the first bad field it stays
// bad and returns zeros.  Callers check ok() once, at the end.

#ifndef TF_OPS_BASE_WIRE_H_
#define TF_OPS_BASE_WIRE_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "tf_ops/base/bytes.h"

namespace hvd {

class WireWriter {
 public:
  template <typename T>
  void Put(T value) {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
    const size_t at = out_.size();
    out_.resize(at + sizeof(T));
    std::memcpy(out_.data() + at, &value, sizeof(T));
  }
  void PutString(const std::string& text) {
    Put(static_cast<uint32_t>(text.size()));
    out_.append(text);
  }
  template <typename T>
  void PutVector(const std::vector<T>& values) {
    Put(static_cast<uint32_t>(values.size()));
    for (const T& value : values) Put(value);
  }
  std::string Take() { return std::move(out_); }

 private:
  std::string out_;
};

class WireReader {
 public:
  explicit WireReader(const std::string& frame) : at_(frame.data()), left_(frame.size()) {}

  template <typename T>
  T Get() {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
    T value{};
    if (!Need(sizeof(T))) return value;
    std::memcpy(&value, at_, sizeof(T));
    Skip(sizeof(T));
    return value;
  }
  // An enum whose values are 0 .. count-1; anything else makes the reader bad.
  template <typename T>
  T GetEnum(int count) {
    const auto raw = Get<std::underlying_type_t<T>>();
    if (static_cast<int>(raw) < 0 || static_cast<int>(raw) >= count) ok_ = false;
    return ok_ ? static_cast<T>(raw) : T{};
  }
  std::string GetString() {
    const uint32_t n = Get<uint32_t>();
    if (!Need(n)) return {};
    std::string text(at_, n);
    Skip(n);
    return text;
  }
  template <typename T>
  std::vector<T> GetVector() {
    const uint32_t n = GetCount(sizeof(T));
    std::vector<T> values;
    values.reserve(n);
    for (uint32_t i = 0; i < n; ++i) values.push_back(Get<T>());
    return values;
  }
  // The number of items that follow, each at least `item_bytes` long.
  uint32_t GetCount(size_t item_bytes) {
    const uint32_t n = Get<uint32_t>();
    if (!Need(static_cast<uint64_t>(n) * item_bytes)) return 0;
    return n;
  }

  // The caller found the fields to contradict each other.
  void Fail() { ok_ = false; }
  bool ok() const { return ok_; }
  // True when every field was good and nothing is left over.
  bool done() const { return ok_ && left_ == 0; }

 private:
  bool Need(uint64_t n) {
    if (n > left_) ok_ = false;
    return ok_;
  }
  void Skip(size_t n) {
    at_ += n;
    left_ -= n;
  }

  const char* at_;
  size_t left_;
  bool ok_ = true;
};

}  // namespace hvd

#endif  // TF_OPS_BASE_WIRE_H_
