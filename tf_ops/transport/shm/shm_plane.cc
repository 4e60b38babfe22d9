#include "tf_ops/transport/shm/shm_plane.h"

#include <algorithm>
#include <utility>

#include "tf_ops/transport/shm/shm_transport.h"

namespace hvd {

ShmPlane::ShmPlane(const World& world, size_t staging_bytes, Clock::duration spin, FdTable* table,
                   const Stop* stop, MakeMemory make_memory)
    : world_(world),
      host_(Topology(world.hosts).host(world.rank)),
      layout_(ShmLayout::Of(static_cast<int>(host_.size()), staging_bytes)),
      spin_(spin),
      table_(table),
      stop_(stop),
      make_memory_(std::move(make_memory)),
      segments_(host_.size()) {}

int ShmPlane::PlaceOf(int rank) const {
  const auto at = std::lower_bound(host_.begin(), host_.end(), rank);
  return at != host_.end() && *at == rank ? static_cast<int>(at - host_.begin()) : -1;
}

std::string ShmPlane::Make(Fd* fd) {
  std::unique_ptr<ShmSegment> segment;
  std::string obstacle =
      ShmSegment::Make(layout_, world_.generation, world_.rank, make_memory_, table_, fd, &segment);
  segments_[PlaceOf(world_.rank)] = std::move(segment);
  return obstacle;
}

std::string ShmPlane::Take(int rank, const Fd& fd) {
  std::unique_ptr<ShmSegment> segment;
  std::string obstacle = ShmSegment::Map(layout_, world_.generation, rank, fd, &segment);
  segments_[PlaceOf(rank)] = std::move(segment);
  return obstacle;
}

void ShmPlane::Decide(bool used) {
  if (!used) return segments_.clear();
  std::vector<std::string> names;
  for (int r : host_) names.push_back(world_.RankText(r));
  std::lock_guard<std::mutex> lock(mutex_);
  rank_.emplace(std::move(segments_), std::move(names), PlaceOf(world_.rank), world_.generation,
                spin_, stop_);
  messages_.emplace(&*rank_);
  if (!stop_->reason().ok()) rank_->Abort();
}

bool ShmPlane::Serves(const std::vector<int>& members) const {
  return rank_.has_value() &&
         std::all_of(members.begin(), members.end(), [&](int r) { return PlaceOf(r) >= 0; });
}

std::unique_ptr<Transport> ShmPlane::NewTransport(std::vector<int> members) {
  for (int& r : members) r = PlaceOf(r);
  return std::make_unique<ShmTransport>(&*rank_, &*messages_, std::move(members));
}

void ShmPlane::Abort() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (rank_.has_value()) rank_->Abort();
}

}  // namespace hvd
