// The value that half of a list's values do not exceed.

#ifndef TESTS_BENCH_CC_MEDIAN_H_
#define TESTS_BENCH_CC_MEDIAN_H_

#include <algorithm>
#include <vector>

namespace hvd_bench {

// REQUIRES: there is one.
inline double Median(std::vector<double> values) {
  const auto middle = values.begin() + values.size() / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace hvd_bench

#endif  // TESTS_BENCH_CC_MEDIAN_H_
