#include "tf_ops/transport/registry.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "tf_ops/base/strings.h"
#include "tf_ops/transport/local/local_fabric.h"
#include "tf_ops/transport/net/endpoint.h"
#include "tf_ops/transport/net/net_fabric.h"
#include "tf_ops/transport/net/socket.h"
#include "tf_ops/transport/shm/shm_plane.h"
#include "tf_ops/transport/tcp/tcp_plane.h"

namespace hvd {
namespace {

// The hosts of `world`, each once.
std::vector<std::string> HostsOf(const World& world) {
  std::vector<std::string> hosts = world.hosts;
  std::sort(hosts.begin(), hosts.end());
  hosts.erase(std::unique(hosts.begin(), hosts.end()), hosts.end());
  return hosts;
}

std::unique_ptr<Fabric> NewSharedFabric(const FabricOptions& options, const World& world,
                                        Listeners listeners, FdTable* table) {
  return NewNetFabric(
      world, std::move(listeners), table, [&](const World& mine, FdTable* fds, const Stop* stop) {
        Planes planes;
        auto shm = std::make_unique<ShmPlane>(mine, options.staging_bytes, options.spin, fds, stop);
        planes.memory = shm.get();
        planes.memory_required = options.transport == "shm";
        planes.list.push_back(std::move(shm));
        planes.list.push_back(NewTcpPlane(mine, fds, stop));
        return planes;
      });
}

struct Row {
  const char* name;
  // Empty: viable.  Otherwise why not.
  std::string (*obstacle)(const World& world);
  std::unique_ptr<Fabric> (*make)(const FabricOptions& options, const World& world,
                                  Listeners listeners, FdTable* table);
};

const Row kRows[] = {
    {"local",
     [](const World& world) -> std::string {
       return world.size == 1 ? "" : StrCat("it serves one rank, and this job has ", world.size);
     },
     [](const FabricOptions&, const World& world, Listeners, FdTable*) {
       return NewLocalFabric(NewLocalHub(world.hosts), world.rank);
     }},
    // Shared memory among ranks of one host, and TCP elsewhere.
    {"auto", [](const World&) -> std::string { return ""; }, NewSharedFabric},
    {"shm",
     [](const World& world) -> std::string {
       const std::vector<std::string> hosts = HostsOf(world);
       if (hosts.size() < 2) return "";
       return StrCat("it serves one host, and this job has ", Join(hosts),
                     "; auto uses shared memory inside each host and TCP between them");
     },
     NewSharedFabric},
    {"tcp", [](const World&) -> std::string { return ""; },
     [](const FabricOptions&, const World& world, Listeners listeners, FdTable* table) {
       listeners.local.Close();
       return NewNetFabric(world, std::move(listeners), table,
                           [](const World& mine, FdTable* fds, const Stop* stop) {
                             Planes planes;
                             planes.unix_sockets = false;
                             planes.list.push_back(NewTcpPlane(mine, fds, stop));
                             return planes;
                           });
     }},
};

const Row* FindRow(const std::string& name) {
  const auto row = std::find_if(std::begin(kRows), std::end(kRows),
                                [&](const Row& r) { return r.name == name; });
  return row == std::end(kRows) ? nullptr : row;
}

}  // namespace

Status CheckTransport(const std::string& name) {
  if (FindRow(name) != nullptr) return Status::Ok();
  std::vector<std::string> names;
  for (const Row& row : kRows) names.push_back(row.name);
  return Status::InvalidArgument(
      StrCat("HOROVOD_TRANSPORT is '", name, "'; this build has ", Join(names)));
}

Status NewFabric(const FabricOptions& options, const World& world, Listeners listeners,
                 FdTable* table, std::unique_ptr<Fabric>* fabric) {
  const std::string wanted =
      options.transport == "auto" && world.size == 1 ? "local" : options.transport;
  HVD_RETURN_IF_ERROR(CheckTransport(wanted));
  const Row& row = *FindRow(wanted);
  const std::string obstacle = row.obstacle(world);
  if (!obstacle.empty()) {
    return Status::InvalidArgument(StrCat("HOROVOD_TRANSPORT=", wanted, ": ", obstacle));
  }
  *fabric = row.make(options, world, std::move(listeners), table);
  return Status::Ok();
}

Status OpenListener(bool loopback_only, FdTable* table, Listeners* listeners,
                    std::vector<std::string>* endpoints) {
  HVD_RETURN_IF_ERROR(Listen(loopback_only, table, &listeners->tcp, endpoints));
  std::string item;
  listeners->local = ListenUnix(table, &item);
  if (listeners->local.valid()) endpoints->push_back(item);
  item = OwnProcessItem();
  if (!item.empty()) endpoints->push_back(item);
  return Status::Ok();
}

}  // namespace hvd
