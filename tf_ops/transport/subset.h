// SubsetTransport: some ranks of a set, over the transport of all of it.
//
// For calls in which ranks of the set have no part.  Those ranks do nothing.

#ifndef TF_OPS_TRANSPORT_SUBSET_H_
#define TF_OPS_TRANSPORT_SUBSET_H_

#include <algorithm>
#include <utility>
#include <vector>

#include "tf_ops/transport/transport.h"

namespace hvd {

class SubsetTransport final : public Transport {
 public:
  // `ranks`: of `whole`, ascending, this one among them.  `whole` outlives this object.
  SubsetTransport(Transport* whole, std::vector<int> ranks)
      : whole_(whole), ranks_(std::move(ranks)) {}

  int rank() const override {
    return static_cast<int>(std::lower_bound(ranks_.begin(), ranks_.end(), whole_->rank()) -
                            ranks_.begin());
  }
  int size() const override { return static_cast<int>(ranks_.size()); }

  uint64_t moved() const override { return whole_->moved(); }

  Status SendRecv(const SendRecvArgs& args) override {
    const auto place = [this](int r) { return r < 0 ? -1 : ranks_[r]; };
    return whole_->SendRecv({place(args.to), args.out, place(args.from), args.in, args.deadline});
  }

 private:
  Transport* const whole_;
  const std::vector<int> ranks_;
};

}  // namespace hvd

#endif  // TF_OPS_TRANSPORT_SUBSET_H_
