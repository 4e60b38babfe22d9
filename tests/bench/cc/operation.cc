#include "tests/bench/cc/operation.h"

#include <errno.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <sstream>

namespace hvd_bench {
namespace {

constexpr int kWaitSeconds = 60;
// Inputs repeat after this many elements.  A prime: a chunk or tensor that is put at a wrong place
// is seen, since distances are powers of two.
constexpr int kPeriod = 13;
constexpr int kTensorStep = 7;

size_t ItemBytes(hvd_dtype dtype) { return dtype == HVD_FLOAT32 ? 4 : 2; }

// What `rank` gives, for each phase of the period.
int InputValue(int phase, int rank) { return phase + rank; }

// The bits of a whole number in [0, 256] as `dtype`; exact.
uint32_t Encode(int value, hvd_dtype dtype) {
  if (dtype == HVD_FLOAT16) {
    if (value == 0) return 0;
    int exponent = 0;
    while ((value >> (exponent + 1)) != 0) ++exponent;
    const int mantissa = (value << (10 - exponent)) & 0x3ff;
    return static_cast<uint32_t>((exponent + 15) << 10 | mantissa);
  }
  const float as_float = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &as_float, sizeof bits);
  return dtype == HVD_BFLOAT16 ? bits >> 16 : bits;
}

using Pattern = std::array<uint32_t, kPeriod>;

template <typename Word>
void Fill(const Pattern& pattern, int phase, int64_t elements, char* out) {
  for (int64_t i = 0; i < elements; ++i) {
    const Word word = static_cast<Word>(pattern[phase]);
    std::memcpy(out + i * sizeof(Word), &word, sizeof(Word));
    if (++phase == kPeriod) phase = 0;
  }
}

// The index of the first element that differs, or -1.
template <typename Word>
int64_t FirstDifference(const Pattern& pattern, int phase, int64_t elements, const char* values) {
  for (int64_t i = 0; i < elements; ++i) {
    Word word;
    std::memcpy(&word, values + i * sizeof(Word), sizeof(Word));
    if (word != static_cast<Word>(pattern[phase])) return i;
    if (++phase == kPeriod) phase = 0;
  }
  return -1;
}

const char* KindName(hvd_kind kind) {
  switch (kind) {
    case HVD_ALLREDUCE:
      return "allreduce";
    case HVD_ALLGATHER:
      return "allgather";
    case HVD_BROADCAST:
      return "broadcast";
    case HVD_ALLTOALL:
      return "alltoall";
    case HVD_REDUCESCATTER:
      return "reducescatter";
    default:
      return "unknown";
  }
}

bool IsSum(hvd_kind kind) { return kind == HVD_ALLREDUCE || kind == HVD_REDUCESCATTER; }

// The elements of an input that are for `rank` where each rank has a part of them.
Section PartOf(int rank, const OperationSpec& spec) {
  const int64_t least = spec.elements / spec.size, more = spec.elements % spec.size;
  return {rank * least + std::min<int64_t>(rank, more), least + (rank < more ? 1 : 0)};
}

Section SectionOf(const OperationSpec& spec) {
  const bool divided = spec.kind == HVD_ALLTOALL || spec.kind == HVD_REDUCESCATTER;
  return divided ? PartOf(spec.rank, spec) : Section{0, spec.elements};
}

}  // namespace

Operation::Operation(const OperationSpec& spec)
    : spec_(spec),
      item_bytes_(ItemBytes(spec.dtype)),
      section_(SectionOf(spec)),
      num_sections_(spec.kind == HVD_ALLGATHER || spec.kind == HVD_ALLTOALL ? spec.size : 1) {
  sem_init(&all_done_, 0, 0);
  if (spec.kind == HVD_ALLTOALL && spec.elements % spec.size != 0) {
    for (int r = 0; r < spec.size; ++r) {
      splits_.push_back(static_cast<int32_t>(PartOf(r, spec).count));
    }
  }
  Pattern pattern;
  for (int phase = 0; phase < kPeriod; ++phase) {
    pattern[phase] = Encode(InputValue(phase, spec.rank), spec.dtype);
  }
  for (int t = 0; t < spec.tensors; ++t) {
    std::ostringstream name;
    // Another case, another name: a name whose signature changes is negotiated anew.
    name << "bench." << KindName(spec.kind) << '.' << spec.dtype << '.' << spec.elements << '.'
         << spec.tensors << '.' << t;
    names_.push_back(name.str());
    inputs_.emplace_back(spec.elements * item_bytes_);
    outputs_.emplace_back(num_sections_ * section_.count * item_bytes_);
    const int phase = (spec.seed + kTensorStep * t) % kPeriod;
    if (item_bytes_ == 4) {
      Fill<uint32_t>(pattern, phase, spec.elements, inputs_[t].data());
    } else {
      Fill<uint16_t>(pattern, phase, spec.elements, inputs_[t].data());
    }
  }
  tensors_.reserve(spec.tensors);  // the requests point into it
  for (int t = 0; t < spec.tensors; ++t) {
    tensors_.push_back({&spec_.elements, 1, inputs_[t].data(), outputs_[t].data()});
    hvd_request request = {};
    request.name = names_[t].c_str();
    request.kind = spec.kind;
    request.dtype = spec.dtype;
    request.reduce_op = HVD_SUM;
    request.prescale = request.postscale = 1.0;
    request.tensors = &tensors_.back();
    request.num_tensors = 1;
    if (!splits_.empty()) request.splits = splits_.data();
    request.num_splits = static_cast<int32_t>(splits_.size());
    request.done = &Operation::Done;
    request.context = this;
    requests_.push_back(request);
  }
}

Operation::~Operation() { sem_destroy(&all_done_); }

void Operation::Done(void* self, int code, const char* message) {
  auto& operation = *static_cast<Operation*>(self);
  if (code != HVD_OK && !operation.failed_.exchange(true)) operation.failure_ = message;
  if (operation.pending_.fetch_sub(1) == 1) sem_post(&operation.all_done_);
}

std::string Operation::Run() {
  pending_ = spec_.tensors;
  for (const hvd_request& request : requests_) {
    uint64_t id;
    if (hvd_enqueue(&request, &id) != HVD_OK) return hvd_last_error();
  }
  timespec deadline;
  clock_gettime(CLOCK_MONOTONIC, &deadline);
  deadline.tv_sec += kWaitSeconds;
  while (sem_clockwait(&all_done_, CLOCK_MONOTONIC, &deadline) != 0) {
    if (errno == EINTR) continue;
    std::ostringstream text;
    text << names_[0] << ": " << pending_ << " of " << spec_.tensors
         << " tensors are not done after " << kWaitSeconds << " s";
    return text.str();
  }
  return failed_ ? failure_ : std::string();
}

void Operation::Spoil() {
  for (std::vector<char>& output : outputs_) std::memset(output.data(), 0xff, output.size());
}

std::string Operation::FirstWrong() const {
  for (int section = 0; section < num_sections_; ++section) {
    Pattern pattern;
    for (int phase = 0; phase < kPeriod; ++phase) {
      int value = InputValue(phase, section);
      for (int r = 1; IsSum(spec_.kind) && r < spec_.size; ++r) {
        value += InputValue(phase, r);
      }
      pattern[phase] = Encode(value, spec_.dtype);
    }
    for (int t = 0; t < spec_.tensors; ++t) {
      const char* const values =
          outputs_[t].data() + section * section_.count * static_cast<int64_t>(item_bytes_);
      const int phase = static_cast<int>((spec_.seed + kTensorStep * t + section_.begin) % kPeriod);
      const int64_t at = item_bytes_ == 4
                             ? FirstDifference<uint32_t>(pattern, phase, section_.count, values)
                             : FirstDifference<uint16_t>(pattern, phase, section_.count, values);
      if (at < 0) continue;
      uint32_t got = 0;
      std::memcpy(&got, values + at * static_cast<int64_t>(item_bytes_), item_bytes_);
      std::ostringstream text;
      text << KindName(spec_.kind) << " '" << names_[t] << "': rank " << spec_.rank
           << " has at element " << section * section_.count + at << " the bits 0x" << std::hex
           << got << ", not 0x" << pattern[(phase + at) % kPeriod];
      return text.str();
    }
  }
  return {};
}

}  // namespace hvd_bench
