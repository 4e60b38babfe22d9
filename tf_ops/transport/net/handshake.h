// How two ranks prove to each other, over a new connection, that they belong to the
// same generation of the same job.
//
//   listener -> caller   Challenge: magic, nonce_l
//   caller -> listener   Claim: channel, caller's rank, nonce_c, mac_c
//   listener -> caller   Proof: mac_l
//
//   mac = HMAC-SHA256(job secret, role | nonce_l | nonce_c | channel | caller | listener |
//                     generation | nonce of the generation)
//
// Both nonces are fresh, so a recorded handshake proves nothing a second time.  All
// messages have a fixed size: a stranger can make the listener store sizeof(Claim)
// bytes, no more.  HMAC is RFC 2104's, from libsodium.
//
// Threads: pure functions.

#ifndef TF_OPS_TRANSPORT_NET_HANDSHAKE_H_
#define TF_OPS_TRANSPORT_NET_HANDSHAKE_H_

#include <array>
#include <cstdint>

#include "tf_ops/base/status.h"
#include "tf_ops/transport/world.h"

namespace hvd {

enum class Channel : uint8_t { kControl = 0, kData = 1 };

using Nonce = std::array<uint8_t, 32>;
using Mac = std::array<uint8_t, 32>;

struct Challenge {
  std::array<char, 8> magic;
  Nonce nonce;
};
struct Claim {
  uint8_t channel;
  std::array<uint8_t, 3> zero;
  int32_t caller;
  Nonce nonce;
  Mac mac;
};
struct Proof {
  Mac mac;
};
static_assert(sizeof(Challenge) == 40 && sizeof(Claim) == 72 && sizeof(Proof) == 32);

// Before any other call of this file.
Status StartCrypto();

Challenge NewChallenge();

// The caller's answer; InvalidArgument when the other end is not one of ours.
Status AnswerChallenge(const World& world, const Challenge& challenge, Channel channel,
                       int listener, Claim* claim);

// The listener's verdict on a claim; PeerLost says what is wrong with it.
Status CheckClaim(const World& world, const Challenge& challenge, const Claim& claim, Proof* proof);

// The caller's verdict on the listener.
Status CheckProof(const World& world, const Challenge& challenge, const Claim& claim, int listener,
                  const Proof& proof);

}  // namespace hvd

#endif  // TF_OPS_TRANSPORT_NET_HANDSHAKE_H_
