// The name under which ranks match a collective (CONTRACT: "Wire names"), but for the turns of
// loops (loop_frames.h).

#ifndef TF_OPS_ADAPTERS_TF_WIRE_NAME_H_
#define TF_OPS_ADAPTERS_TF_WIRE_NAME_H_

#include <string>

namespace hvd_tf {

// `node`: the node's name with the path of the calls it was inlined through.
// `given`: the op's tensor_name attribute; where set, it stands for the node's own last
// part, and the path stays.  `ignore_scope`: drop the path.
//
// TensorFlow's counters ("/_12") are left out: they differ between ranks that traced a
// function more or less often.
std::string WireName(const std::string& node, const std::string& given, bool ignore_scope);

}  // namespace hvd_tf

#endif  // TF_OPS_ADAPTERS_TF_WIRE_NAME_H_
