#include "tf_ops/transport/registry.h"

#include <utility>

#include "tf_ops/base/strings.h"
#include "tf_ops/transport/local/local_fabric.h"
#include "tf_ops/transport/tcp/socket.h"
#include "tf_ops/transport/tcp/tcp_fabric.h"

namespace hvd {
namespace {

// "auto" takes the first viable row.
struct Row {
  const char* name;
  // Empty: viable.  Otherwise why not.
  std::string (*obstacle)(const World& world);
  std::unique_ptr<Fabric> (*make)(const World& world, Fd listener, FdTable* table);
};

const Row kRows[] = {
    {"local",
     [](const World& world) -> std::string {
       return world.size == 1 ? "" : StrCat("it serves one rank, and this job has ", world.size);
     },
     [](const World& world, Fd, FdTable*) {
       return NewLocalFabric(NewLocalHub(world.hosts), world.rank);
     }},
    {"tcp", [](const World&) -> std::string { return ""; },
     [](const World& world, Fd listener, FdTable* table) {
       return NewTcpFabric(world, std::move(listener), table);
     }},
};

}  // namespace

Status NewFabric(const std::string& wanted, const World& world, Fd listener, FdTable* table,
                 std::unique_ptr<Fabric>* fabric) {
  std::vector<std::string> names;
  for (const Row& row : kRows) {
    names.push_back(row.name);
    const std::string obstacle = row.obstacle(world);
    if (wanted == "auto" ? !obstacle.empty() : wanted != row.name) continue;
    if (!obstacle.empty()) {
      return Status::InvalidArgument(StrCat("HOROVOD_TRANSPORT=", wanted, ": ", obstacle));
    }
    *fabric = row.make(world, std::move(listener), table);
    return Status::Ok();
  }
  return Status::InvalidArgument(
      StrCat("HOROVOD_TRANSPORT is '", wanted, "'; this build has auto, ", Join(names)));
}

Status OpenListener(bool loopback_only, FdTable* table, Fd* listener,
                    std::vector<std::string>* endpoints) {
  return Listen(loopback_only, table, listener, endpoints);
}

}  // namespace hvd
