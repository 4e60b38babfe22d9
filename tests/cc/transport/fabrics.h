// Makes the fabrics of N ranks inside one process, for every transport of this build.

#ifndef TESTS_CC_TRANSPORT_FABRICS_H_
#define TESTS_CC_TRANSPORT_FABRICS_H_

#include <memory>
#include <string>
#include <vector>

#include "tf_ops/base/fd.h"
#include "tf_ops/transport/fabric.h"
#include "tf_ops/transport/listeners.h"
#include "tf_ops/transport/world.h"

namespace hvd {

struct Fabrics {
  std::vector<World> worlds;
  std::vector<std::unique_ptr<Fabric>> ranks;
};

// The world of each of `size` ranks on this host, with endpoints to call.
std::vector<World> WorldsOf(int size, FdTable* table, std::vector<Listeners>* listeners);

// `transport` is a name of the registry; "local" serves any number of threads here.
// `table` outlives the fabrics.
Fabrics MakeFabrics(const std::string& transport, int size, FdTable* table);

// As above, for as many ranks as there are `hosts`: the host that each is said to be on.
Fabrics MakeFabrics(const std::string& transport, const std::vector<std::string>& hosts,
                    FdTable* table, size_t staging_bytes = 4 << 20);

}  // namespace hvd

#endif  // TESTS_CC_TRANSPORT_FABRICS_H_
