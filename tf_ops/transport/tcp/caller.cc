#include "tf_ops/transport/tcp/caller.h"

#include <utility>

#include "tf_ops/base/strings.h"
#include "tf_ops/transport/tcp/socket.h"

namespace hvd {
namespace {

Status Shake(const World& world, int peer, Channel channel, int fd, int stop_fd,
             Deadline deadline) {
  Challenge challenge;
  HVD_RETURN_IF_ERROR(ReadAll(fd, {&challenge, sizeof(challenge)}, stop_fd, deadline));
  Claim claim;
  HVD_RETURN_IF_ERROR(AnswerChallenge(world, challenge, channel, peer, &claim));
  HVD_RETURN_IF_ERROR(WriteAll(fd, {&claim, sizeof(claim)}, stop_fd, deadline));
  Proof proof;
  HVD_RETURN_IF_ERROR(ReadAll(fd, {&proof, sizeof(proof)}, stop_fd, deadline));
  return CheckProof(world, challenge, claim, peer, proof);
}

}  // namespace

Status CallPeer(const World& world, int peer, Channel channel, FdTable* table, int stop_fd,
                Deadline deadline, Fd* fd) {
  Fd out;
  Status status = Call(world.endpoints[peer], table, stop_fd, deadline, &out);
  if (status.ok()) status = Shake(world, peer, channel, out.get(), stop_fd, deadline);
  if (!status.ok()) {
    return Status(status.code(), StrCat("cannot reach ", world.RankText(peer), " at ",
                                        Join(world.endpoints[peer]), ": ", status.message()));
  }
  *fd = std::move(out);
  return Status::Ok();
}

}  // namespace hvd
