#include "tests/cc/transport/fabrics.h"

#include <gtest/gtest.h>

#include <numeric>
#include <utility>

#include "tf_ops/transport/local/local_fabric.h"
#include "tf_ops/transport/registry.h"

namespace hvd {

std::vector<World> WorldsOf(int size, FdTable* table, std::vector<Listeners>* listeners) {
  std::vector<World> worlds(size);
  listeners->clear();
  listeners->resize(size);
  std::vector<std::vector<std::string>> endpoints(size);
  for (int r = 0; r < size; ++r) {
    EXPECT_TRUE(OpenListener(true, table, &(*listeners)[r], &endpoints[r]).ok());
  }
  std::vector<int> all(size);
  std::iota(all.begin(), all.end(), 0);
  for (int r = 0; r < size; ++r) {
    World& world = worlds[r];
    world.rank = world.local_rank = r;
    world.size = world.local_size = size;
    world.secret = "secret";
    world.nonce = "nonce";
    world.hosts.assign(size, "here");
    world.endpoints = endpoints;
    world.process_sets.push_back(all);
  }
  return worlds;
}

Fabrics MakeFabrics(const std::string& transport, const std::vector<std::string>& hosts,
                    FdTable* table, size_t staging_bytes) {
  const int size = static_cast<int>(hosts.size());
  std::vector<Listeners> listeners;
  Fabrics fabrics;
  fabrics.worlds = WorldsOf(size, table, &listeners);
  for (World& world : fabrics.worlds) world.hosts = hosts;
  const auto hub = NewLocalHub(fabrics.worlds[0].hosts);
  for (int r = 0; r < size; ++r) {
    std::unique_ptr<Fabric> fabric;
    if (transport == "local") {
      fabric = NewLocalFabric(hub, r);
    } else {
      const Status status = NewFabric({transport, staging_bytes}, fabrics.worlds[r],
                                      std::move(listeners[r]), table, &fabric);
      EXPECT_TRUE(status.ok()) << status;
    }
    fabrics.ranks.push_back(std::move(fabric));
  }
  return fabrics;
}

Fabrics MakeFabrics(const std::string& transport, int size, FdTable* table) {
  return MakeFabrics(transport, std::vector<std::string>(size, "here"), table);
}

}  // namespace hvd
