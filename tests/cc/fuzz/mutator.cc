#include "tests/cc/fuzz/mutator.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace hvd {

int64_t Mutator::Number() {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  return OneOf<int64_t>({0, 1, 2, 5, 40, -1, 1 << 20, kMost, kMost / 2, -kMost - 1});
}

int Mutator::SmallInt() {
  return OneOf<int>({0, 0, 1, 2, 3, 4, 5, 6, -1, 99, std::numeric_limits<int>::max(),
                     std::numeric_limits<int>::min()});
}

std::string Mutator::Text() {
  return OneOf<std::string>({"", "t0", "t1", "t2", std::string(70, 'n')});
}

Signature Mutator::RandomSignature() {
  Signature s;
  s.name = OneOf<std::string>({"t0", "t1", "t2", "t3"});
  s.process_set = Pick(0, 1);
  s.kind = OneOf({Kind::kAllreduce, Kind::kAllgather, Kind::kBroadcast, Kind::kBarrier,
                  Kind::kAlltoall, Kind::kReducescatter});
  s.dtype = DType::kFloat32;
  s.grouped = OneIn(4);
  if (s.kind != Kind::kBarrier) s.shapes.resize(s.grouped ? Pick(1, 3) : 1);
  for (std::vector<int64_t>& shape : s.shapes) {
    for (int d = Pick(1, 3); d > 0; --d) shape.push_back(Pick(0, 40));
  }
  if (s.kind == Kind::kAlltoall) s.splits.assign(6, s.shapes[0][0] / 6);
  while (OneIn(4)) Damage(&s);
  return s;
}

Report Mutator::RandomReport() {
  Report report;
  report.what = static_cast<Report::What>(Pick(0, Report::kNumWhats - 1));
  report.rank = Pick(0, 5);
  if (report.what == Report::What::kAnnouncement) {
    const auto what = static_cast<Announcement::What>(Pick(0, Announcement::kNumWhats - 1));
    report.announcement = {what, RandomSignature(), Text()};
    return report;
  }
  // Ids close together travel as bits, others as a list.
  const CacheId first = OneOf<CacheId>({1, 7, std::numeric_limits<CacheId>::max() - 300});
  const int step = OneOf({1, 3, 100});
  for (int i = Pick(0, 100); i > 0; --i)
    report.ready.push_back({first + Pick(0, 2) * step + i, {}});
  for (int i = Pick(0, 2); i > 0; --i) report.ready.push_back({first, {Number(), Pick(0, 5)}});
  return report;
}

Response Mutator::RandomResponse() {
  Response response;
  response.sequence = Pick(1, 20);
  response.process_set = Pick(0, 1);
  for (int i = Pick(0, 2); i > 0; --i) {
    ResponseTensor tensor;
    tensor.id = Pick(0, 9);
    tensor.cache = tensor.id != 0 && OneIn(2);
    if (tensor.id == 0 || tensor.cache) {
      tensor.signature = std::make_shared<const Signature>(RandomSignature());
    }
    response.tensors.push_back(std::move(tensor));
    response.sizes.emplace_back();
    if (OneIn(3)) response.sizes.back() = {1, 2, 3, 4, 5, 6};
  }
  if (response.tensors.size() == 1 && OneIn(4)) {
    response.part_begin = Pick(0, 30);
    response.part_count = Pick(0, 20);
  }
  if (OneIn(8)) response.absent = {Pick(0, 2), Pick(3, 5)};
  if (OneIn(4)) {
    response.only = {Pick(0, 5)};
    response.status = Status::FailedPrecondition("ranks disagree");
  }
  if (response.tensors.empty() || OneIn(4)) response.evicted = {static_cast<CacheId>(Pick(0, 9))};
  return response;
}

Frame Mutator::RandomFrame() {
  Frame frame;
  frame.type = static_cast<FrameType>(Pick(0, kNumFrameTypes - 1));
  frame.generation = 1;
  if (frame.type == FrameType::kReports) {
    for (int i = Pick(0, 4); i > 0; --i) frame.reports.push_back(RandomReport());
  } else if (frame.type == FrameType::kResponses) {
    for (int i = Pick(0, 4); i > 0; --i) frame.responses.push_back(RandomResponse());
  } else if (frame.type == FrameType::kAbort) {
    frame.status = Status(static_cast<Code>(Pick(0, kNumCodes - 1)), Text());
  } else {
    frame.rank = SmallInt();
  }
  return frame;
}

void Mutator::Damage(Signature* s) {
  switch (Pick(0, 13)) {
    case 0:
      s->name = Text();
      break;
    case 1:
      s->process_set = SmallInt();
      break;
    case 2:
      s->kind = static_cast<Kind>(Pick(0, kNumKinds - 1));
      break;
    case 3:
      s->dtype = static_cast<DType>(Pick(0, kNumDTypes - 1));
      if (OneIn(2)) s->wire_dtype = static_cast<DType>(Pick(0, kNumDTypes - 1));
      break;
    case 4:
      s->op = static_cast<ReduceOp>(Pick(0, kNumReduceOps - 1));
      break;
    case 5:
      (OneIn(2) ? s->prescale : s->postscale) =
          OneOf<double>({0.0, 2.0, std::numeric_limits<double>::quiet_NaN(),
                         std::numeric_limits<double>::infinity()});
      break;
    case 6:
      s->root = SmallInt();
      break;
    case 7:
      s->gradient = !s->gradient;
      break;
    case 8:
      s->shapes.resize(Pick(0, 3), {3});
      break;
    case 9:
      if (s->shapes.empty()) break;
      s->shapes[Pick(0, static_cast<int>(s->shapes.size()) - 1)].resize(Pick(0, 4), Number());
      break;
    case 10:
      s->splits.resize(Pick(0, 7), Number());
      break;
    case 11:
      s->grouped = !s->grouped;
      break;
    case 12:
      s->others = SmallInt();
      break;
    case 13:
      s->ranks.resize(Pick(0, 4), SmallInt());
      break;
  }
}

void Mutator::Damage(Report* report) {
  const int what = Pick(0, 3);
  if (what == 0) {
    report->rank = SmallInt();
  } else if (what == 1) {
    *report = RandomReport();
  } else if (report->what == Report::What::kAnnouncement) {
    Damage(&report->announcement.signature);
  } else if (report->ready.empty()) {
    report->ready.push_back({static_cast<CacheId>(Pick(0, 9)), {}});
  } else {
    CachedReady& ready = report->ready[Pick(0, static_cast<int>(report->ready.size()) - 1)];
    if (OneIn(2)) ready.id = static_cast<CacheId>(Pick(0, 9));
    if (OneIn(2)) ready.sizes.resize(Pick(0, 4), Number());
  }
}

void Mutator::Damage(Response* response) {
  const auto any = [&](auto& list) -> auto& {
    return list[Pick(0, static_cast<int>(list.size()) - 1)];
  };
  switch (Pick(0, 9)) {
    case 0:
      response->sequence = static_cast<uint64_t>(OneIn(2) ? Number() : Pick(0, 30));
      break;
    case 1:
      response->process_set = SmallInt();
      break;
    case 2:
      response->only.push_back(SmallInt());
      break;
    case 3:
      response->status = response->status.ok() ? Status::FailedPrecondition("no") : Status::Ok();
      break;
    case 4:
      if (response->tensors.empty()) break;
      any(response->tensors).id = static_cast<CacheId>(Pick(0, 9));
      break;
    case 5: {
      if (response->tensors.empty()) break;
      ResponseTensor& tensor = any(response->tensors);
      Signature s = tensor.signature == nullptr ? RandomSignature() : *tensor.signature;
      Damage(&s);
      tensor.signature = std::make_shared<const Signature>(s);
      tensor.cache = tensor.id != 0;
      break;
    }
    case 6:
      if (response->sizes.empty()) break;
      any(response->sizes).resize(Pick(0, 7), Number());
      break;
    case 7:
      response->part_begin = Number();
      response->part_count = Number();
      break;
    case 8:
      response->evicted.push_back(static_cast<CacheId>(Pick(0, 9)));
      break;
    case 9:
      response->absent.push_back(SmallInt());
      response->divisor = SmallInt();
      break;
  }
  // What has no id travels in full.
  for (ResponseTensor& tensor : response->tensors) {
    tensor.cache = tensor.cache && tensor.id != 0;
    if (tensor.signature == nullptr && tensor.id == 0) {
      tensor.signature = std::make_shared<const Signature>(RandomSignature());
    }
  }
}

void Mutator::DamageField(Frame* frame) {
  if (OneIn(20)) frame->type = static_cast<FrameType>(Pick(0, kNumFrameTypes - 1));
  if (OneIn(50)) frame->generation += Pick(-1, 1);
  if (!frame->reports.empty()) {
    Damage(&frame->reports[Pick(0, static_cast<int>(frame->reports.size()) - 1)]);
  } else if (!frame->responses.empty()) {
    Damage(&frame->responses[Pick(0, static_cast<int>(frame->responses.size()) - 1)]);
  } else {
    frame->rank = SmallInt();
  }
}

std::string Mutator::DamageBytes(std::string bytes, const std::string& other) {
  for (int times = Pick(1, 3); times > 0; --times) {
    const int size = static_cast<int>(bytes.size());
    const int at = Pick(0, size);
    const int n = Pick(0, std::min(size - at, 40));
    switch (Pick(0, 6)) {
      case 0:
        bytes.resize(at);
        break;
      case 1:
        bytes.append(Pick(1, 40), static_cast<char>(Pick(0, 255)));
        break;
      case 2:
        if (at < size) bytes[at] = static_cast<char>(bytes[at] ^ 1 << Pick(0, 7));
        break;
      case 3: {
        const uint32_t length = OneOf<uint32_t>({0, 1, 2, 0x7fffffff, 0xffffffff});
        if (at + sizeof(length) <= bytes.size()) std::memcpy(&bytes[at], &length, sizeof(length));
        break;
      }
      case 4:
        bytes = bytes.substr(0, at) + other.substr(Pick(0, static_cast<int>(other.size())));
        break;
      case 5:
        bytes.insert(at, bytes.substr(at, n));
        break;
      case 6:
        bytes.erase(at, n);
        break;
    }
  }
  return bytes;
}

}  // namespace hvd
