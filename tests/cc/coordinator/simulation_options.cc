#include <algorithm>
#include <random>
#include <vector>

#include "tests/cc/coordinator/simulation.h"
#include "tf_ops/base/strings.h"

namespace hvd {

std::string HistoryOptions::Text() const {
  return StrCat("seed ", seed, ": ", ranks, " ranks on ", hosts, " hosts, ", sets, " more sets, ",
                steps, " steps of ", tensors, " tensors, cache ", cache_capacity, ", threshold ",
                threshold_bytes, ", trouble ", trouble_percent, "%, changes ", change_percent,
                "%, disagreements ", disagree_percent, "%, odd ", odd_percent, "%, abandoned ",
                abandon_percent, "%, leavers ", leavers, ", joiners ", joiners, ", set changes ",
                set_changes, ", deaths ", deaths);
}

bool HistoryOptions::Calm() const {
  return cache_capacity >= 1024 && trouble_percent == 0 && change_percent == 0 &&
         disagree_percent == 0 && odd_percent == 0 && abandon_percent == 0 && !leavers &&
         deaths == 0 && !(joiners && (sets > 0 || set_changes));
}

HistoryOptions OptionsOf(unsigned seed) {
  std::mt19937 random(seed);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  HistoryOptions o;
  o.seed = seed;
  o.ranks = pick(0, 9) == 0 ? pick(17, 64) : pick(2, 16);
  o.hosts = std::min(pick(1, 8), o.ranks);
  o.sets = pick(0, 2);
  o.steps = pick(1, 6);
  o.tensors = pick(1, 8);
  o.cache_capacity = pick(0, 1) ? 1024 : pick(0, 6);
  o.threshold_bytes = pick(0, 3) * 150'000;
  // Half of the histories are calm.
  o.trouble_percent = pick(0, 1) * pick(0, 15);
  o.change_percent = pick(0, 1) * pick(0, 50);
  o.disagree_percent = pick(0, 3) == 0 ? pick(0, 10) : 0;
  o.odd_percent = pick(0, 3) == 0 ? pick(0, 50) : 0;
  o.abandon_percent = pick(0, 3) == 0 ? pick(0, 50) : 0;
  o.leavers = pick(0, 3) == 0;
  o.deaths = pick(0, 5) == 0 ? pick(1, 2) : 0;
  o.joiners = pick(0, 2) == 0;
  o.set_changes = pick(0, 2) == 0;
  return o;
}

HistoryOptions Shrink(HistoryOptions failing) {
  const std::vector<int HistoryOptions::*> numbers = {
      &HistoryOptions::deaths,          &HistoryOptions::abandon_percent,
      &HistoryOptions::odd_percent,     &HistoryOptions::disagree_percent,
      &HistoryOptions::change_percent,  &HistoryOptions::trouble_percent,
      &HistoryOptions::threshold_bytes, &HistoryOptions::sets,
      &HistoryOptions::steps,           &HistoryOptions::tensors,
      &HistoryOptions::hosts,           &HistoryOptions::ranks};
  for (bool smaller = true; smaller;) {
    smaller = false;
    for (int HistoryOptions::* number : numbers) {
      const bool positive = number == &HistoryOptions::ranks || number == &HistoryOptions::hosts ||
                            number == &HistoryOptions::steps || number == &HistoryOptions::tensors;
      const int least = number == &HistoryOptions::ranks ? 2 : positive ? 1 : 0;
      for (int next : {least, failing.*number / 2, failing.*number - 1}) {
        if (next < least || next >= failing.*number) continue;
        HistoryOptions tried = failing;
        tried.*number = next;
        tried.hosts = std::min(tried.hosts, tried.ranks);
        // Another order of events may be needed for it to fail.
        for (unsigned seed = 0; seed < 20; ++seed) {
          tried.seed = failing.seed + seed;
          if (RunHistory(tried).empty()) continue;
          failing = tried;
          smaller = true;
          break;
        }
        if (smaller) break;
      }
    }
  }
  return failing;
}

}  // namespace hvd
