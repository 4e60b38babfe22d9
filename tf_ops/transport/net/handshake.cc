#include "tf_ops/transport/net/handshake.h"

#include <sodium.h>

#include "tf_ops/base/strings.h"

namespace hvd {
namespace {

static_assert(crypto_auth_hmacsha256_BYTES == sizeof(Mac));

// "HVDTCP" and the version of this protocol.
constexpr std::array<char, 8> kMagic = {'H', 'V', 'D', 'T', 'C', 'P', '0', '1'};

template <typename T>
void Feed(crypto_auth_hmacsha256_state* state, const T& value) {
  crypto_auth_hmacsha256_update(state, reinterpret_cast<const unsigned char*>(&value),
                                sizeof(value));
}

Mac MacOf(char role, const World& world, const Challenge& challenge, const Claim& claim,
          int32_t listener) {
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, reinterpret_cast<const unsigned char*>(world.secret.data()),
                              world.secret.size());
  Feed(&state, role);
  Feed(&state, challenge.nonce);
  Feed(&state, claim.nonce);
  Feed(&state, claim.channel);
  Feed(&state, claim.caller);
  Feed(&state, listener);
  Feed(&state, world.generation);
  crypto_auth_hmacsha256_update(&state, reinterpret_cast<const unsigned char*>(world.nonce.data()),
                                world.nonce.size());
  Mac mac;
  crypto_auth_hmacsha256_final(&state, mac.data());
  return mac;
}

bool Same(const Mac& a, const Mac& b) { return sodium_memcmp(a.data(), b.data(), a.size()) == 0; }

}  // namespace

Status StartCrypto() {
  return sodium_init() < 0 ? Status::Internal("libsodium found no source of randomness")
                           : Status::Ok();
}

Challenge NewChallenge() {
  Challenge challenge;
  challenge.magic = kMagic;
  randombytes_buf(challenge.nonce.data(), challenge.nonce.size());
  return challenge;
}

Status AnswerChallenge(const World& world, const Challenge& challenge, Channel channel,
                       int listener, Claim* claim) {
  if (challenge.magic != kMagic) {
    return Status::InvalidArgument(StrCat("what listens where ", world.RankText(listener),
                                          " should does not speak this version of the protocol"));
  }
  *claim = {};
  claim->channel = static_cast<uint8_t>(channel);
  claim->caller = world.rank;
  randombytes_buf(claim->nonce.data(), claim->nonce.size());
  claim->mac = MacOf('c', world, challenge, *claim, listener);
  return Status::Ok();
}

Status CheckClaim(const World& world, const Challenge& challenge, const Claim& claim,
                  Proof* proof) {
  if (!Same(claim.mac, MacOf('c', world, challenge, claim, world.rank))) {
    return Status::PeerLost("it does not know the secret of this job and generation");
  }
  if (claim.channel > static_cast<uint8_t>(Channel::kData)) {
    return Status::PeerLost(StrCat("it asks for channel ", int{claim.channel}));
  }
  if (claim.caller < 0 || claim.caller >= world.size || claim.caller == world.rank) {
    return Status::PeerLost(StrCat("it claims to be rank ", claim.caller, " of ", world.size));
  }
  proof->mac = MacOf('l', world, challenge, claim, world.rank);
  return Status::Ok();
}

Status CheckProof(const World& world, const Challenge& challenge, const Claim& claim, int listener,
                  const Proof& proof) {
  if (Same(proof.mac, MacOf('l', world, challenge, claim, listener))) return Status::Ok();
  return Status::PeerLost(StrCat("what listens where ", world.RankText(listener),
                                 " should does not know the secret of this job"));
}

}  // namespace hvd
