#include "tf_ops/coordinator/message.h"

#include "tf_ops/base/wire.h"

namespace hvd {
namespace {

// The shortest encodings: a count in a frame is checked against them.
constexpr size_t kLeastSignatureBytes = 4 + 4 + 3 + 16 + 4 + 1 + 4;
constexpr size_t kLeastAnnouncementBytes = 1 + kLeastSignatureBytes + 4;
constexpr size_t kLeastResponseBytes = 8 + 4 + 4 + 4 + 4;

void Put(WireWriter* w, const Signature& s) {
  w->PutString(s.name);
  w->Put(static_cast<int32_t>(s.process_set));
  w->Put(s.kind);
  w->Put(s.dtype);
  w->Put(s.op);
  w->Put(s.prescale);
  w->Put(s.postscale);
  w->Put(static_cast<int32_t>(s.root));
  w->Put(static_cast<uint8_t>(s.gradient));
  w->PutVector(s.shape);
}

Signature GetSignature(WireReader* r) {
  Signature s;
  s.name = r->GetString();
  s.process_set = r->Get<int32_t>();
  s.kind = r->GetEnum<Kind>(kNumKinds);
  s.dtype = r->GetEnum<DType>(kNumDTypes);
  s.op = r->GetEnum<ReduceOp>(kNumReduceOps);
  s.prescale = r->Get<double>();
  s.postscale = r->Get<double>();
  s.root = r->Get<int32_t>();
  s.gradient = r->Get<uint8_t>() != 0;
  s.shape = r->GetVector<int64_t>();
  return s;
}

void Put(WireWriter* w, const Status& status) {
  w->Put(status.code());
  w->PutString(status.message());
}

Status GetStatus(WireReader* r) {
  const auto code = r->GetEnum<Code>(kNumCodes);
  return Status(code, r->GetString());
}

void Put(WireWriter* w, const Response& response) {
  w->Put(response.sequence);
  Put(w, response.status);
  w->Put(static_cast<uint32_t>(response.tensors.size()));
  for (const Signature& s : response.tensors) Put(w, s);
  w->Put(static_cast<uint32_t>(response.rows.size()));
  for (const auto& rows : response.rows) w->PutVector(rows);
}

Response GetResponse(WireReader* r) {
  Response response;
  response.sequence = r->Get<uint64_t>();
  response.status = GetStatus(r);
  const uint32_t tensors = r->GetCount(kLeastSignatureBytes);
  for (uint32_t i = 0; i < tensors && r->ok(); ++i) {
    response.tensors.push_back(GetSignature(r));
  }
  const uint32_t rows = r->GetCount(sizeof(uint32_t));
  for (uint32_t i = 0; i < rows && r->ok(); ++i) {
    response.rows.push_back(r->GetVector<int64_t>());
  }
  // What runs has tensors, and a list of rows, maybe empty, for each.
  if (tensors == 0 || (response.status.ok() && rows != tensors)) r->Fail();
  return response;
}

}  // namespace

std::string Encode(const Frame& frame) {
  WireWriter w;
  w.Put(frame.type);
  w.Put(frame.generation);
  switch (frame.type) {
    case FrameType::kAnnouncements:
      w.Put(static_cast<uint32_t>(frame.announcements.size()));
      for (const Announcement& a : frame.announcements) {
        w.Put(a.what);
        Put(&w, a.signature);
        w.PutString(a.reason);
      }
      break;
    case FrameType::kResponses:
      w.Put(static_cast<uint32_t>(frame.responses.size()));
      for (const Response& response : frame.responses) Put(&w, response);
      break;
    case FrameType::kAbort:
      Put(&w, frame.status);
      break;
    case FrameType::kGoodbye:
    case FrameType::kFarewell:
    case FrameType::kCoordinatorLeft:
    case FrameType::kHeartbeat:
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
    case FrameType::kAnnouncements: {
      const uint32_t n = r.GetCount(kLeastAnnouncementBytes);
      for (uint32_t i = 0; i < n && r.ok(); ++i) {
        Announcement a;
        a.what = r.GetEnum<Announcement::What>(Announcement::kNumWhats);
        a.signature = GetSignature(&r);
        a.reason = r.GetString();
        frame->announcements.push_back(std::move(a));
      }
      break;
    }
    case FrameType::kResponses: {
      const uint32_t n = r.GetCount(kLeastResponseBytes);
      for (uint32_t i = 0; i < n && r.ok(); ++i) frame->responses.push_back(GetResponse(&r));
      break;
    }
    case FrameType::kAbort:
      frame->status = GetStatus(&r);
      break;
    case FrameType::kGoodbye:
    case FrameType::kFarewell:
    case FrameType::kCoordinatorLeft:
    case FrameType::kHeartbeat:
      break;
  }
  return r.done();
}

}  // namespace hvd
