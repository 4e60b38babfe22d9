// Mutator: frames of the control channel, whole and damaged.
//
// The same seed gives the same frames.

#ifndef TESTS_CC_FUZZ_MUTATOR_H_
#define TESTS_CC_FUZZ_MUTATOR_H_

#include <cstdint>
#include <random>
#include <string>

#include "tf_ops/coordinator/message.h"

namespace hvd {

class Mutator {
 public:
  explicit Mutator(unsigned seed) : random_(seed) {}

  // low .. high.
  int Pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  bool OneIn(int n) { return Pick(1, n) == 1; }

  // A frame of any type that can be read, and mostly means something.
  Frame RandomFrame();

  // One field that readers can read, but that may mean nothing.
  void DamageField(Frame* frame);

  // Cut, lengthened, flipped, a length overwritten, spliced with `other`, or a part repeated.
  std::string DamageBytes(std::string bytes, const std::string& other);

 private:
  template <typename T>
  const T& OneOf(const std::initializer_list<T>& values) {
    return values.begin()[Pick(0, static_cast<int>(values.size()) - 1)];
  }
  int64_t Number();
  int SmallInt();
  std::string Text();
  Signature RandomSignature();
  Report RandomReport();
  Response RandomResponse();
  void Damage(Signature* s);
  void Damage(Report* report);
  void Damage(Response* response);

  std::mt19937 random_;
};

}  // namespace hvd

#endif  // TESTS_CC_FUZZ_MUTATOR_H_
