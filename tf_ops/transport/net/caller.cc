#include "tf_ops/transport/net/caller.h"

#include <utility>

#include "tf_ops/base/log.h"
#include "tf_ops/base/strings.h"
#include "tf_ops/transport/net/endpoint.h"
#include "tf_ops/transport/net/socket.h"

namespace hvd {
namespace {

// One silent address must not use up the time of the next.
constexpr auto kPerAddress = std::chrono::seconds(5);
constexpr auto kBetweenRounds = std::chrono::milliseconds(50);
// Ranks that start at different times are no trouble yet.
constexpr auto kBeforeWarning = std::chrono::seconds(10);

// `soon` bounds the wait for a sign that a rank listens there.  From then on it may be slow:
// hanging up on it would look to it like the end of this rank.
Status Shake(const World& world, int peer, Channel channel, int fd, int stop_fd, Deadline soon,
             Deadline deadline) {
  Challenge challenge;
  HVD_RETURN_IF_ERROR(ReadAll(fd, {&challenge, sizeof(challenge)}, stop_fd, soon));
  Claim claim;
  HVD_RETURN_IF_ERROR(AnswerChallenge(world, challenge, channel, peer, &claim));
  HVD_RETURN_IF_ERROR(WriteAll(fd, {&claim, sizeof(claim)}, stop_fd, deadline));
  Proof proof;
  HVD_RETURN_IF_ERROR(ReadAll(fd, {&proof, sizeof(proof)}, stop_fd, deadline));
  return CheckProof(world, challenge, claim, peer, proof);
}

}  // namespace

Status CallPeer(const World& world, int peer, const std::vector<std::string>& endpoints,
                Channel channel, FdTable* table, int stop_fd, Deadline deadline, Fd* fd) {
  const auto about = [&](const Status& status) {
    return Status(status.code(), StrCat("cannot reach ", world.RankText(peer), " at ",
                                        Join(endpoints), ": ", status.message()));
  };
  Status last = Status::PeerLost("it published no address");
  Deadline warning = deadline.never() ? Deadline::After(kBeforeWarning) : Deadline::Never();
  do {
    for (const std::string& endpoint : endpoints) {
      // A Unix socket that accepts is the peer's own: it is not given up for being slow.
      const bool is_unix = !UnixName(endpoint).empty();
      const Deadline soon = is_unix ? deadline : Earlier(deadline, Deadline::After(kPerAddress));
      Fd out;
      last = Dial(endpoint, table, stop_fd, soon, &out);
      if (last.ok()) {
        last = Shake(world, peer, channel, out.get(), stop_fd, soon, deadline);
      }
      if (last.ok()) {
        *fd = std::move(out);
        return last;
      }
      if (last.code() == Code::kCancelled || last.code() == Code::kInternal) return about(last);
    }
    if (warning.passed()) {  // no error will tell
      warning = Deadline::Never();
      HVD_LOG(kWarning) << about(last).message() << "; still trying";
    }
    if (Pause(stop_fd, kBetweenRounds)) return Status::Cancelled("stopped");
  } while (!deadline.passed());
  return about(Status::DeadlineExceeded(last.message()));
}

}  // namespace hvd
