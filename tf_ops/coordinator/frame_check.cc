#include "tf_ops/coordinator/frame_check.h"

#include <algorithm>

#include "tf_ops/base/strings.h"
#include "tf_ops/collectives/collective.h"
#include "tf_ops/fusion/plan.h"

namespace hvd {
namespace {

bool Goes(FrameType type, bool up) {
  switch (type) {
    case FrameType::kReports:
    case FrameType::kGoodbye:
      return up;
    case FrameType::kResponses:
    case FrameType::kFarewell:
    case FrameType::kCutOff:
      return !up;
    case FrameType::kAbort:
    case FrameType::kHeartbeat:
    case FrameType::kAlive:
    case FrameType::kOver:
      return true;
  }
  return false;
}

// Whether `sizes` are the SizesOf() this request on `ranks` ranks of the set.
bool AreSizes(const Signature& s, const std::vector<int64_t>& sizes, size_t ranks,
              const std::vector<int>& members) {
  const size_t each = SizeCount(s, static_cast<int>(members.size()));
  if (sizes.size() != ranks * each) return false;
  if (sizes.empty()) return true;
  if (*std::min_element(sizes.begin(), sizes.end()) < 0) return false;
  const auto fits = [&](const std::vector<int64_t>& of_one) {
    return Validate(WithSizes(s, of_one), members, members[0]).ok();
  };
  const bool each_alone = FindCollective(s.kind)->sizes == Sizes::kSplits;
  std::vector<int64_t> most(each, 0);  // rows fit when the most of them do
  for (auto from = sizes.begin(); from != sizes.end(); from += each) {
    if (each_alone && !fits({from, from + each})) return false;
    std::transform(from, from + each, most.begin(), most.begin(),
                   [](int64_t a, int64_t b) { return std::max(a, b); });
  }
  return each_alone || fits(most);
}

}  // namespace

Status FrameCheck::Bad(int peer, const std::string& what) const {
  return Status::Internal(
      StrCat(world_.RankText(peer), " sent ", what, "; do all ranks run the same version?"));
}

bool FrameCheck::IsBelow(int rank, int top) const {
  const std::vector<int>& below = topology_.subtree(top);
  return std::binary_search(below.begin(), below.end(), rank);
}

bool FrameCheck::IsMember(int set, int rank) const {
  return std::binary_search(members(set).begin(), members(set).end(), rank);
}

Status FrameCheck::Check(int peer, const Frame& frame) const {
  // Rank 0 has no parent, so all that it hears comes from below.
  const bool up = topology_.parent(world_.rank) != peer;
  const int type = static_cast<int>(frame.type);
  if (!Goes(frame.type, up)) return Bad(peer, StrCat("a frame of type ", type, " the wrong way"));

  bool fits = true;
  if (frame.type == FrameType::kGoodbye) {
    fits = IsBelow(frame.rank, peer);
  } else if (frame.type == FrameType::kFarewell) {
    fits = IsBelow(frame.rank, world_.rank);
  } else if (frame.type == FrameType::kCutOff) {
    fits = frame.rank >= 0 && frame.rank < world_.size && frame.rank != world_.rank &&
           IsBelow(world_.rank, frame.rank);
  } else if (frame.type == FrameType::kAbort && frame.status.ok()) {
    return Bad(peer, "an abort without a reason");
  }
  for (const Report& report : frame.reports) fits = fits && IsBelow(report.rank, peer);
  for (const Response& response : frame.responses) {
    fits = fits && sets_.has(response.process_set);
    for (int rank : response.only) fits = fits && IsMember(response.process_set, rank);
  }
  if (!fits) {
    return Bad(peer, StrCat("a frame of type ", type,
                            " that names a rank or process set that it cannot speak for"));
  }
  for (const Report& report : frame.reports) HVD_RETURN_IF_ERROR(CheckReport(peer, report));
  return Status::Ok();
}

Status FrameCheck::CheckReport(int peer, const Report& report) const {
  for (const CachedReady& ready : report.ready) {
    HVD_RETURN_IF_ERROR(CheckReady(peer, report, ready));
  }
  if (report.what != Report::What::kAnnouncement) return Status::Ok();
  const Announcement& announcement = report.announcement;
  const Signature& s = announcement.signature;
  if (!sets_.knew(s.process_set)) {
    return Bad(peer, StrCat("word of ", s.Title(), " on process set ", s.process_set,
                            ", which does not exist"));
  }
  // It was removed while the report was on its way.
  if (!sets_.has(s.process_set)) return Status::Ok();
  // A request is refused for what is wrong with it.
  if (announcement.what == Announcement::What::kRefused) return Status::Ok();
  const Status status = Validate(s, members(s.process_set), report.rank);
  if (status.ok()) return status;
  return Bad(peer, StrCat("a request of rank ", report.rank,
                          " that should not have left it: ", status.message()));
}

Status FrameCheck::CheckReady(int peer, const Report& report, const CachedReady& ready) const {
  const auto signature = cache_.Find(ready.id);
  // It was evicted while the report was on its way.
  if (signature == nullptr && ready.id != 0) return Status::Ok();
  const auto bad = [&](const std::string& why) {
    return Bad(peer, StrCat("word that cache id ", ready.id, " is ready", why));
  };
  if (signature == nullptr) return bad(", which is none");
  const int set = signature->process_set;
  size_t ranks = IsMember(set, report.rank) ? 1 : 0;
  if (report.what == Report::What::kSubtreeReady) {
    ranks = ports_.Members(set, ports_.PortOf(peer)).size();
  }
  if (ranks == 0) return bad(StrCat(", on no rank of process set ", set));
  if (!AreSizes(*signature, ready.sizes, ranks, members(set))) {
    return bad(StrCat(", but not with the sizes of ", ranks, " ranks"));
  }
  return Status::Ok();
}

Status FrameCheck::CheckResponse(int peer, const Response& response) const {
  const auto bad = [&](const std::string& what) {
    return Bad(peer, StrCat("position ", response.sequence, " of the stream, ", what));
  };
  const int set = response.process_set;
  for (const ResponseTensor& tensor : response.tensors) {
    const Signature& s = *tensor.signature;
    if (s.process_set != set) {
      return bad(StrCat("on process set ", set, ", with ", s.Title(), " of ", s.process_set));
    }
    if (tensor.id != 0 && !tensor.cache) continue;  // looked at when it was entered
    const Status status = Validate(s, members(set), members(set)[0]);
    if (!status.ok()) return bad(StrCat("which no rank can have asked for: ", status.message()));
  }
  const bool whole = response.part_count < 0;
  if (!response.status.ok()) {
    return whole ? Status::Ok() : bad("which fails a part of a tensor");
  }
  if (response.tensors.empty()) return Status::Ok();

  const Signature& first = response.first();
  const bool elementwise = FindCollective(first.kind)->elementwise;
  if (!response.only.empty()) return bad("which is to run on a part of its process set");
  HVD_RETURN_IF_ERROR(CheckAbsent(peer, response));
  if (!elementwise && response.tensors.size() > 1) {
    return bad(StrCat("in which ", first.Title(), " travels with others"));
  }
  const std::vector<int>& ranks = members(set);
  for (size_t i = 0; i < response.tensors.size(); ++i) {
    const Signature& s = *response.tensors[i].signature;
    if (i > 0 && BucketKey(s) != BucketKey(first)) {
      return bad(StrCat("in which ", first.Title(), " travels with ", s.Title()));
    }
    HVD_RETURN_IF_ERROR(CheckSizes(peer, response, i, ranks));
  }
  if (whole) return Status::Ok();
  const int64_t count = first.count();
  if (CanBeCut(first) && response.part_count > 0 && response.part_count <= count &&
      response.part_begin <= count - response.part_count) {
    return Status::Ok();
  }
  return bad(StrCat("with ", response.part_count, " elements from ", response.part_begin, " on of ",
                    first.Title(), ", which has ", count));
}

Status FrameCheck::CheckAbsent(int peer, const Response& response) const {
  const std::vector<int>& absent = response.absent;
  const Signature& first = response.first();
  bool fits =
      absent.empty() || (response.process_set == 0 && !FindCollective(first.kind)->answered() &&
                         absent.size() < members(0).size());
  for (size_t i = 0; i < absent.size(); ++i) {
    fits = fits && IsMember(0, absent[i]) && (i == 0 || absent[i - 1] < absent[i]);
  }
  if (first.kind == Kind::kBroadcast) {
    fits = fits && !std::binary_search(absent.begin(), absent.end(), first.root);
  }
  const int there = static_cast<int>(members(response.process_set).size() - absent.size());
  fits = fits && (response.divisor == 0 || response.divisor == there);
  if (fits) return Status::Ok();
  return Bad(peer,
             StrCat("position ", response.sequence, " of the stream, where ", first.Title(),
                    " is to run without ", RanksText(absent), " and divide by ", response.divisor));
}

Status FrameCheck::CheckSizes(int peer, const Response& response, size_t i,
                              const std::vector<int>& set) const {
  const Signature& s = *response.tensors[i].signature;
  if (AreSizes(s, response.sizes[i], set.size(), set)) return Status::Ok();
  return Bad(peer, StrCat("position ", response.sequence, " of the stream, where ", s.Title(),
                          " comes not with the sizes of ", set.size(), " ranks"));
}

Status FrameCheck::CheckMine(int peer, const Response& response, size_t i,
                             const Request& request) const {
  const Signature& mine = request.signature;
  const ResponseTensor& theirs = response.tensors[i];
  const std::vector<int>& set = members(response.process_set);
  // By an id that was there this rank has announced the very signature.
  const bool same = theirs.id != 0 && !theirs.cache && theirs.id == request.reported_as;
  const Status status = same ? Status::Ok() : Agree(mine, world_.rank, *theirs.signature, set[0]);
  const auto bad = [&](const std::string& why) {
    return Bad(peer, StrCat("position ", response.sequence, " of the stream, which does not fit ",
                            "what this rank has announced: ", why));
  };
  if (!status.ok()) return bad(status.message());
  const std::vector<int64_t> sizes = SizesOf(mine);
  if (sizes.empty()) return Status::Ok();
  const size_t me = std::lower_bound(set.begin(), set.end(), world_.rank) - set.begin();
  const auto from = response.sizes[i].begin() + me * sizes.size();
  if (std::equal(sizes.begin(), sizes.end(), from)) return Status::Ok();
  return bad(StrCat(mine.Title(), ": sizes ", ShapeText({from, from + sizes.size()}),
                    " instead of ", ShapeText(sizes)));
}

}  // namespace hvd
