#include "tf_ops/coordinator/message.h"

#include <algorithm>
#include <bitset>
#include <limits>
#include <utility>

#include "tf_ops/base/wire.h"

namespace hvd {
namespace {

// The shortest encodings: a count in a frame is checked against them.
constexpr size_t kLeastSignatureBytes = 4 + 4 + 4 + 16 + 4 + 2 + 4 + 4 + 4;
constexpr size_t kLeastReportBytes = 1 + 4 + 1 + 4 + 4;
constexpr size_t kLeastSizedBytes = 4 + 4;
constexpr size_t kLeastTensorBytes = 1 + 4;
constexpr size_t kLeastResponseBytes = 8 + 4 + 4 + 1 + 4 + 4 + 4 + 4 + 4;

// A set of ids takes a bit each on the wire and much more in memory.  Twice what any cache
// holds (config.def), and in a frame, which may tell of many ranks, twice that again: 512 ranks
// with 8192 tensors each.
constexpr size_t kMostIds = 1 << 21;
constexpr size_t kMostIdsInFrame = 2 * kMostIds;

void Put(WireWriter* w, const Signature& s) {
  w->PutString(s.name);
  w->Put(static_cast<int32_t>(s.process_set));
  w->Put(s.kind);
  w->Put(s.dtype);
  w->Put(s.sent_as());
  w->Put(s.op);
  w->Put(s.prescale);
  w->Put(s.postscale);
  w->Put(static_cast<int32_t>(s.root));
  w->Put(static_cast<uint8_t>(s.gradient));
  w->Put(static_cast<uint8_t>(s.grouped));
  w->Put(static_cast<int32_t>(s.others));
  w->Put(static_cast<uint32_t>(s.shapes.size()));
  for (const auto& shape : s.shapes) w->PutVector(shape);
  w->PutVector(s.splits);
  w->PutVector(s.ranks);
}

Signature GetSignature(WireReader* r) {
  Signature s;
  s.name = r->GetString();
  s.process_set = r->Get<int32_t>();
  s.kind = r->GetEnum<Kind>(kNumKinds);
  s.dtype = r->GetEnum<DType>(kNumDTypes);
  const auto sent_as = r->GetEnum<DType>(kNumDTypes);
  if (sent_as != s.dtype) s.wire_dtype = sent_as;
  s.op = r->GetEnum<ReduceOp>(kNumReduceOps);
  s.prescale = r->Get<double>();
  s.postscale = r->Get<double>();
  s.root = r->Get<int32_t>();
  s.gradient = r->Get<uint8_t>() != 0;
  s.grouped = r->Get<uint8_t>() != 0;
  s.others = r->Get<int32_t>();
  const uint32_t shapes = r->GetCount(sizeof(uint32_t));
  for (uint32_t i = 0; i < shapes && r->ok(); ++i) s.shapes.push_back(r->GetVector<int64_t>());
  s.splits = r->GetVector<int64_t>();
  s.ranks = r->GetVector<int>();
  return s;
}

void Put(WireWriter* w, const Status& status) {
  w->Put(status.code());
  if (!status.ok()) w->PutString(status.message());
}

Status GetStatus(WireReader* r) {
  const auto code = r->GetEnum<Code>(kNumCodes);
  return code == Code::kOk ? Status() : Status(code, r->GetString());
}

// A set of ids: as bits from the lowest on where that is shorter, else as a list.
void PutIds(WireWriter* w, std::vector<CacheId> ids) {
  std::sort(ids.begin(), ids.end());
  const uint64_t span = ids.empty() ? 0 : uint64_t{ids.back()} - ids.front() + 1;
  const uint64_t bit_bytes = (span + 7) / 8;
  const bool as_bits = bit_bytes < ids.size() * sizeof(CacheId);
  w->Put(static_cast<uint8_t>(as_bits));
  if (!as_bits) return w->PutVector(ids);
  std::string bits(bit_bytes, '\0');
  for (CacheId id : ids) {
    const CacheId at = id - ids.front();
    bits[at / 8] = static_cast<char>(bits[at / 8] | (1 << at % 8));
  }
  w->Put(ids.front());
  w->PutString(bits);
}

// `room`: the ids that the frame may still hold.
std::vector<CacheId> GetIds(WireReader* r, size_t* room) {
  if (r->Get<uint8_t>() == 0) return r->GetVector<CacheId>();
  const CacheId first = r->Get<CacheId>();
  const std::string bits = r->GetString();
  std::vector<CacheId> ids;
  size_t count = 0;
  for (const char byte : bits) count += std::bitset<8>(static_cast<unsigned char>(byte)).count();
  if (count > std::min(kMostIds, *room)) {
    r->Fail();
    return ids;
  }
  *room -= count;
  ids.reserve(count);
  for (size_t at = 0; at < bits.size() * 8; ++at) {
    if ((bits[at / 8] >> at % 8 & 1) == 0) continue;
    if (at > std::numeric_limits<CacheId>::max() - first) r->Fail();
    ids.push_back(first + static_cast<CacheId>(at));
  }
  return ids;
}

void Put(WireWriter* w, const std::vector<CachedReady>& ready) {
  std::vector<CacheId> plain;
  uint32_t sized = 0;
  for (const CachedReady& c : ready) {
    if (c.sizes.empty()) {
      plain.push_back(c.id);
    } else {
      ++sized;
    }
  }
  PutIds(w, std::move(plain));
  w->Put(sized);
  for (const CachedReady& c : ready) {
    if (c.sizes.empty()) continue;
    w->Put(c.id);
    w->PutVector(c.sizes);
  }
}

std::vector<CachedReady> GetReady(WireReader* r, size_t* room) {
  const std::vector<CacheId> ids = GetIds(r, room);
  const uint32_t sized = r->GetCount(kLeastSizedBytes);
  std::vector<CachedReady> ready;
  ready.reserve(ids.size() + sized);
  for (CacheId id : ids) ready.push_back({id, {}});
  for (uint32_t i = 0; i < sized && r->ok(); ++i) {
    const CacheId id = r->Get<CacheId>();
    ready.push_back({id, r->GetVector<int64_t>()});
  }
  return ready;
}

void Put(WireWriter* w, const Report& report) {
  w->Put(report.what);
  w->Put(static_cast<int32_t>(report.rank));
  if (report.what != Report::What::kAnnouncement) return Put(w, report.ready);
  w->Put(report.announcement.what);
  Put(w, report.announcement.signature);
  w->PutString(report.announcement.reason);
}

Report GetReport(WireReader* r, size_t* room) {
  Report report;
  report.what = r->GetEnum<Report::What>(Report::kNumWhats);
  report.rank = r->Get<int32_t>();
  if (report.what != Report::What::kAnnouncement) {
    report.ready = GetReady(r, room);
  } else {
    report.announcement.what = r->GetEnum<Announcement::What>(Announcement::kNumWhats);
    report.announcement.signature = GetSignature(r);
    report.announcement.reason = r->GetString();
  }
  return report;
}

void Put(WireWriter* w, const ResponseTensor& tensor) {
  const bool in_full = tensor.id == 0 || tensor.cache;
  w->Put(static_cast<uint8_t>(in_full));
  w->Put(tensor.id);
  if (in_full) Put(w, *tensor.signature);
}

ResponseTensor GetTensor(WireReader* r) {
  ResponseTensor tensor;
  const bool in_full = r->Get<uint8_t>() != 0;
  tensor.id = r->Get<CacheId>();
  if (in_full) {
    tensor.cache = tensor.id != 0;
    tensor.signature = std::make_shared<const Signature>(GetSignature(r));
  } else if (tensor.id == 0) {
    r->Fail();
  }
  return tensor;
}

void Put(WireWriter* w, const Response& response) {
  w->Put(response.sequence);
  w->Put(static_cast<int32_t>(response.process_set));
  w->PutVector(response.only);
  Put(w, response.status);
  w->Put(static_cast<uint32_t>(response.tensors.size()));
  for (const ResponseTensor& tensor : response.tensors) Put(w, tensor);
  w->Put(static_cast<uint32_t>(response.sizes.size()));
  for (const auto& sizes : response.sizes) w->PutVector(sizes);
  w->PutVector(response.absent);
  if (!response.absent.empty()) w->Put(static_cast<int32_t>(response.divisor));
  const bool whole = response.part_count < 0;
  w->Put(static_cast<uint32_t>(whole ? 0 : 1));
  if (!whole) {
    w->Put(response.part_begin);
    w->Put(response.part_count);
  }
  w->PutVector(response.evicted);
}

Response GetResponse(WireReader* r) {
  Response response;
  response.sequence = r->Get<uint64_t>();
  response.process_set = r->Get<int32_t>();
  response.only = r->GetVector<int>();
  response.status = GetStatus(r);
  const uint32_t tensors = r->GetCount(kLeastTensorBytes);
  for (uint32_t i = 0; i < tensors && r->ok(); ++i) response.tensors.push_back(GetTensor(r));
  const uint32_t sizes = r->GetCount(sizeof(uint32_t));
  for (uint32_t i = 0; i < sizes && r->ok(); ++i) {
    response.sizes.push_back(r->GetVector<int64_t>());
  }
  response.absent = r->GetVector<int>();
  if (!response.absent.empty()) response.divisor = r->Get<int32_t>();
  if (r->Get<uint32_t>() != 0) {
    response.part_begin = r->Get<int64_t>();
    response.part_count = r->Get<int64_t>();
    if (response.part_begin < 0 || response.part_count < 0 || tensors != 1) r->Fail();
  }
  response.evicted = r->GetVector<CacheId>();
  // What runs has tensors, and a list of sizes, maybe empty, for each.
  if (tensors == 0 && response.evicted.empty()) r->Fail();
  if (response.status.ok() && sizes != tensors) r->Fail();
  return response;
}

}  // namespace

std::string Encode(const Frame& frame) {
  WireWriter w;
  w.Put(frame.type);
  w.Put(frame.generation);
  switch (frame.type) {
    case FrameType::kReports:
      w.Put(static_cast<uint32_t>(frame.reports.size()));
      for (const Report& report : frame.reports) Put(&w, report);
      break;
    case FrameType::kResponses:
      w.Put(static_cast<uint32_t>(frame.responses.size()));
      for (const Response& response : frame.responses) Put(&w, response);
      break;
    case FrameType::kGoodbye:
    case FrameType::kFarewell:
    case FrameType::kCutOff:
      w.Put(static_cast<int32_t>(frame.rank));
      break;
    case FrameType::kAbort:
      Put(&w, frame.status);
      break;
    case FrameType::kHeartbeat:
    case FrameType::kAlive:
    case FrameType::kOver:
      break;
  }
  return w.Take();
}

bool Decode(const std::string& bytes, Frame* frame) {
  WireReader r(bytes);
  *frame = {};
  frame->type = r.GetEnum<FrameType>(kNumFrameTypes);
  frame->generation = r.Get<uint64_t>();
  if (!r.ok()) return false;
  switch (frame->type) {
    case FrameType::kReports: {
      const uint32_t n = r.GetCount(kLeastReportBytes);
      size_t room = kMostIdsInFrame;
      for (uint32_t i = 0; i < n && r.ok(); ++i) frame->reports.push_back(GetReport(&r, &room));
      break;
    }
    case FrameType::kResponses: {
      const uint32_t n = r.GetCount(kLeastResponseBytes);
      for (uint32_t i = 0; i < n && r.ok(); ++i) frame->responses.push_back(GetResponse(&r));
      break;
    }
    case FrameType::kGoodbye:
    case FrameType::kFarewell:
    case FrameType::kCutOff:
      frame->rank = r.Get<int32_t>();
      break;
    case FrameType::kAbort:
      frame->status = GetStatus(&r);
      break;
    case FrameType::kHeartbeat:
    case FrameType::kAlive:
    case FrameType::kOver:
      break;
  }
  return r.done();
}

}  // namespace hvd
