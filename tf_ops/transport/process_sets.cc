#include "tf_ops/transport/process_sets.h"

#include <utility>

namespace hvd {

ProcessSets::ProcessSets(const World& world) {
  for (const std::vector<int>& members : world.process_sets) {
    sets_.push_back({members, !members.empty()});
  }
}

const ProcessSets::Set* ProcessSets::Get(int id) const {
  return id >= 0 && id < static_cast<int>(sets_.size()) ? &sets_[id] : nullptr;
}

int ProcessSets::size() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<int>(sets_.size());
}

bool ProcessSets::has(int id) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const Set* set = Get(id);
  return set != nullptr && set->there;
}

bool ProcessSets::knew(int id) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const Set* set = Get(id);
  return set != nullptr && !set->members.empty();
}

const std::vector<int>& ProcessSets::members(int id) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return sets_[id].members;
}

int ProcessSets::Find(const std::vector<int>& members) const {
  std::lock_guard<std::mutex> lock(mutex_);
  for (size_t id = 0; id < sets_.size(); ++id) {
    if (sets_[id].there && sets_[id].members == members) return static_cast<int>(id);
  }
  return -1;
}

int ProcessSets::Add(std::vector<int> members) {
  std::lock_guard<std::mutex> lock(mutex_);
  sets_.push_back({std::move(members)});
  return static_cast<int>(sets_.size()) - 1;
}

void ProcessSets::Remove(int id) {
  std::lock_guard<std::mutex> lock(mutex_);
  sets_[id].there = false;
}

}  // namespace hvd
