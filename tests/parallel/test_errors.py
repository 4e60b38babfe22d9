"""What ranks get when they disagree or are wrong; and that the next op works."""

from __future__ import annotations

import numpy as np
import pytest

from tests.harness.pool import run_ranks
from tests.parallel.modes import MODES, evaluate


def _failure(mode: str, build) -> tuple[str, str]:
    """Returns class and text of the error that running `build` gives."""
    import tensorflow as tf

    with pytest.raises(tf.errors.OpError) as caught:
        evaluate(mode, build)
    return type(caught.value).__name__, caught.value.message


def _next_op_works(mode: str) -> None:
    import horovod.tensorflow as hvd

    total = evaluate(mode, lambda: hvd.allreduce(hvd.rank() + 1, op=hvd.Sum, name="next"))
    assert total == hvd.size() * (hvd.size() + 1) // 2


def _disagreements() -> dict[str, list[tuple[str, str]]]:
    """Runs each disagreement in each mode; returns its errors on this rank."""
    import horovod.tensorflow as hvd

    hvd.init()
    rank = hvd.rank()

    def ones(length: int, dtype: str = "float32") -> np.ndarray:
        return np.ones(length, dtype)

    cases = {
        f"shape {dtype} {op.name}": lambda dtype=dtype, op=op: hvd.allreduce(
            ones(2 + rank, dtype), op=op, name="x"
        )
        for dtype in ("float32", "int32")
        for op in (hvd.Sum, hvd.Average)
    }
    cases |= {
        "dtype": lambda: hvd.allreduce(ones(2, ("float32", "float64")[rank]), name="x"),
        "op": lambda: hvd.allreduce(ones(2), op=(hvd.Sum, hvd.Max)[rank], name="x"),
        "factor": lambda: hvd.allreduce(ones(2), prescale_factor=1.0 + rank, name="x"),
        "root": lambda: hvd.broadcast(ones(2), rank, name="x"),
        "row shape": lambda: hvd.allgather(np.ones((2, 2 + rank)), name="x"),
        "kind": lambda: (hvd.allgather, hvd.allreduce)[rank](ones(2), name="x"),
    }
    errors: dict[str, list[tuple[str, str]]] = {}
    for case, build in cases.items():
        errors[case] = []
        for mode in MODES:
            errors[case].append(_failure(mode, build))
            _next_op_works(mode)
    return errors


@pytest.fixture(scope="module")
def disagreements() -> list[dict[str, list[tuple[str, str]]]]:
    return run_ranks(_disagreements, 2, timeout_s=120)


@pytest.mark.smoke
@pytest.mark.parametrize(
    "case, both_values",
    [
        ("shape float32 Sum", ("[2]", "[3]")),
        ("shape float32 Average", ("[2]", "[3]")),
        ("shape int32 Sum", ("[2]", "[3]")),
        ("shape int32 Average", ("[2]", "[3]")),
        ("dtype", ("float32", "float64")),
        ("op", ("Sum", "Max")),
        ("factor", ("1", "2")),
        ("root", ("0", "1")),
        ("row shape", ("2", "3")),
        ("kind", ("allgather", "allreduce")),
    ],
)
def test_disagreement_is_failed_precondition_with_both_values(disagreements, case, both_values):
    ranks = [errors[case] for errors in disagreements]
    for kind, text in ranks[0] + ranks[1]:
        assert kind == "FailedPreconditionError", text
        for word in ("x", "rank 0", "rank 1", *both_values):
            assert word.lower() in text.lower()


@pytest.mark.smoke
def test_disagreement_gives_all_ranks_the_same_text(disagreements):
    def without_what_tensorflow_adds(text: str) -> str:
        return text.split("}} ", 1)[-1].split(" [Op:")[0]

    texts = [
        {case: without_what_tensorflow_adds(errors[0][1]) for case, errors in rank.items()}
        for rank in disagreements
    ]
    assert texts[0] == texts[1]


def _wrong_everywhere() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    for mode in MODES:
        for root in (7, -1, 0.5):
            kind, text = _failure(mode, lambda root=root: hvd.broadcast([1.0], root, name="b"))
            assert kind == "InvalidArgumentError", text
            assert "b" in text and str(root) in text
            _next_op_works(mode)
    kind, text = _failure("eager", lambda: hvd.broadcast_([tf.Variable(1.0)], 0.5, name="v"))
    assert kind == "InvalidArgumentError" and "root_rank=0.5" in text, text
    _next_op_works("eager")
    kind, text = _failure("eager", lambda: hvd.allgather(1.0, name="g"))
    assert kind == "InvalidArgumentError", text
    _next_op_works("eager")
    kind, text = _failure("eager", lambda: hvd.allreduce([True], op=hvd.Average, name="mean"))
    assert kind == "InvalidArgumentError", text
    assert "mean" in text and "bool" in text
    _next_op_works("eager")
    # What TensorFlow itself refuses never reaches a rank.
    with pytest.raises((TypeError, tf.errors.InvalidArgumentError)):
        hvd.allreduce(["text"])
    _next_op_works("eager")


@pytest.mark.smoke
@pytest.mark.parametrize("size", [1, 2])
def test_arguments_that_are_wrong_everywhere(size):
    run_ranks(_wrong_everywhere, size, timeout_s=90)


def _wrong_on_rank_1() -> list[tuple[str, str]]:
    import horovod.tensorflow as hvd

    hvd.init()
    rank = hvd.rank()
    errors = [
        _failure("eager", lambda: hvd.allgather(1.0 if rank == 1 else [1.0], name="g")),
    ]
    _next_op_works("eager")
    for mode in MODES:
        errors.append(_failure(mode, lambda: hvd.broadcast([1.0], 7 if rank == 1 else 0, name="b")))
        _next_op_works(mode)
    errors.append(
        _failure("eager", lambda: hvd.broadcast([1.0], 0.5 if rank == 1 else 0, name="b"))
    )
    _next_op_works("eager")
    return errors


@pytest.mark.smoke
def test_what_one_rank_alone_has_wrong_is_told_to_the_others():
    others, wrong, _ = run_ranks(_wrong_on_rank_1, 3, timeout_s=90)
    for kind, text in wrong:
        assert kind == "InvalidArgumentError", text
    for kind, text in others:
        assert kind == "FailedPreconditionError", text
        assert "rank 1" in text


def _before_init() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    assert not hvd.is_initialized()
    calls = (
        hvd.rank,
        hvd.size,
        hvd.local_rank,
        hvd.local_size,
        hvd.cross_rank,
        hvd.cross_size,
        hvd.rank_op,
        hvd.size_op,
        hvd.barrier,
        lambda: hvd.allreduce([1.0]),
        lambda: hvd.allgather([1.0]),
        lambda: hvd.broadcast([1.0], 0),
        lambda: hvd.broadcast_variables([tf.Variable(1.0)], 0),
    )
    for call in calls:
        with pytest.raises(ValueError, match="init"):
            call()
    hvd.init()
    hvd.init()  # twice is as good as once
    assert hvd.size() == 1
    hvd.shutdown()
    for call in calls:
        with pytest.raises(ValueError, match="init"):
            call()


@pytest.mark.smoke
def test_calls_before_init_and_after_shutdown_are_value_errors():
    run_ranks(_before_init, 1)


def _wrong_options() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    sgd = tf.compat.v1.train.GradientDescentOptimizer(0.1)
    for call in (
        lambda: hvd.allreduce([1.0], average=True, op=hvd.Sum),
        lambda: hvd.DistributedOptimizer("adam"),
        lambda: hvd.DistributedOptimizer(hvd.DistributedOptimizer(sgd)),
        lambda: hvd.DistributedOptimizer(sgd, op=hvd.Max),
        lambda: hvd.DistributedOptimizer(sgd, op=hvd.Sum, gradient_predivide_factor=2.0),
        lambda: hvd.DistributedOptimizer(sgd, backward_passes_per_step=0),
        lambda: hvd.DistributedGradientTape(None),
    ):
        with pytest.raises(ValueError):
            call()
    with pytest.raises(RuntimeError, match="broadcast_variables"):
        hvd.broadcast_global_variables(0)


def test_wrong_options_are_refused_at_the_call():
    run_ranks(_wrong_options, 1)


def _name_twice_in_flight() -> str:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    text = ""
    if hvd.rank() == 0:
        # The others never enqueue it, so the first is still waiting when the second comes.
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            twice = []
            for scope in ("a", "b"):
                with tf.name_scope(scope):
                    twice.append(hvd.allreduce([1.0], name="same", ignore_name_scope=True))
            with pytest.raises(tf.errors.InvalidArgumentError) as caught:
                session.run(twice)
            text = caught.value.message
    _next_op_works("session")
    return text


def test_a_name_twice_in_flight_is_invalid_argument():
    assert "same" in run_ranks(_name_twice_in_flight, 2)[0]
