// Damaged frames of the control channel, by the ten thousand: reading one ends, allocates
// no more than the frame's bytes allow, and what can be read means the same once more when it
// is written and read again.

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <new>

#include "tests/cc/fuzz/mutator.h"
#include "tf_ops/base/strings.h"
#include "tf_ops/coordinator/message.h"

namespace {
thread_local size_t allocated = 0;  // in all, by this thread
}  // namespace

// Never inlined: a compiler that saw both halves of a pair would take free() for a mistake.
[[gnu::noinline]] void* operator new(size_t bytes) {
  allocated += bytes;
  if (void* const memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace hvd {
namespace {

constexpr unsigned kCases = 30000;

// A byte may hold the bits of eight cache ids.  All else needs less.
constexpr size_t kMostPerByte = 8 * (sizeof(CacheId) + sizeof(CachedReady)) + 32;
constexpr size_t kMostBeside = 1024;

// Reads `bytes`; what it allocated for that.
size_t Cost(const std::string& bytes, Frame* frame, bool* readable) {
  const size_t before = allocated;
  *readable = Decode(bytes, frame);
  return allocated - before;
}

void ExpectBoundedAndStable(const std::string& bytes, const std::string& about) {
  Frame frame;
  bool readable;
  const size_t cost = Cost(bytes, &frame, &readable);
  ASSERT_LE(cost, bytes.size() * kMostPerByte + kMostBeside) << about;
  if (!readable) return;
  const std::string again = Encode(frame);
  Frame second;
  ASSERT_TRUE(Decode(again, &second)) << about;
  ASSERT_TRUE(Encode(second) == again) << about;
}

TEST(FrameFuzz, AllocationsAreCounted) {
  const size_t before = allocated;
  ::operator delete(::operator new(1000));  // a new-expression might be left out
  EXPECT_EQ(allocated - before, 1000u);
}

TEST(FrameFuzz, ReadableFramesAreStable) {
  for (unsigned seed = 0; seed < kCases / 10; ++seed) {
    Mutator mutator(seed);
    const std::string bytes = Encode(mutator.RandomFrame());
    ExpectBoundedAndStable(bytes, StrCat("seed ", seed));
    if (HasFatalFailure()) return;
  }
}

TEST(FrameFuzz, DamagedBytesAreBounded) {
  for (unsigned seed = 0; seed < kCases; ++seed) {
    Mutator mutator(seed);
    const std::string bytes = Encode(mutator.RandomFrame());
    const std::string other = Encode(mutator.RandomFrame());
    ExpectBoundedAndStable(mutator.DamageBytes(bytes, other), StrCat("seed ", seed));
    if (HasFatalFailure()) return;
  }
}

TEST(FrameFuzz, DamagedFieldsAreBounded) {
  for (unsigned seed = 0; seed < kCases; ++seed) {
    Mutator mutator(seed);
    Frame frame = mutator.RandomFrame();
    mutator.DamageField(&frame);
    ExpectBoundedAndStable(Encode(frame), StrCat("seed ", seed));
    if (HasFatalFailure()) return;
  }
}

// Lengths that promise more than there is, at every place of every type of frame.
TEST(FrameFuzz, EveryLengthIsBounded) {
  for (unsigned seed = 0; seed < kCases / 200; ++seed) {
    Mutator mutator(seed);
    const std::string whole = Encode(mutator.RandomFrame());
    for (size_t at = 0; at + sizeof(uint32_t) <= whole.size(); ++at) {
      for (const uint32_t length : {0u, 1u, 0x7fffffffu, 0xffffffffu}) {
        std::string bytes = whole;
        std::memcpy(&bytes[at], &length, sizeof(length));
        ExpectBoundedAndStable(bytes, StrCat("seed ", seed, ", length ", length, " at ", at));
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Sets of ids take most memory for their bytes: full ones, one after another.
TEST(FrameFuzz, AFrameFullOfIdsIsBounded) {
  Frame one;
  one.type = FrameType::kReports;
  one.reports.emplace_back();
  for (CacheId id = 1; id <= 1 << 20; ++id) one.reports[0].ready.push_back({id, {}});
  const std::string bytes = Encode(one);
  const size_t head = sizeof(FrameType) + sizeof(uint64_t) + sizeof(uint32_t);
  const auto frame_of = [&](uint32_t reports) {
    std::string frame = bytes.substr(0, head);
    std::memcpy(&frame[head - sizeof(reports)], &reports, sizeof(reports));
    for (uint32_t i = 0; i < reports; ++i) frame += bytes.substr(head);
    return frame;
  };
  ExpectBoundedAndStable(frame_of(1), "one report");
  Frame got;
  EXPECT_TRUE(Decode(frame_of(4), &got));
  EXPECT_FALSE(Decode(frame_of(5), &got));
}

}  // namespace
}  // namespace hvd
