// join: a rank that has no more data says so, and waits until all ranks have.
//
// Meanwhile the others' collectives run without it (Response::absent).  The answer is the rank
// that joined last.

#include "tf_ops/collectives/collective.h"

namespace hvd {

const Collective kJoin = {
    Kind::kJoin,
    /*elementwise=*/false,
    Sizes::kNone,
    /*groups=*/false,
    kJoinName,
    ValidateAnswered,
    [](const Signature&, int, const Signature&, int) { return Status::Ok(); },
    AnswerShape,
    /*divide=*/nullptr,
    RunAnswer,
};

}  // namespace hvd
