"""broadcast_object, broadcast_object_fn, allgather_object and broadcast_."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.harness.pool import run_ranks


class _Odd:
    """Pickled by value, since it is local to its function there."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Odd) and other.value == self.value

    __hash__ = None  # type: ignore[assignment]


def _objects() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    some = hvd.ProcessSet([0, 2])
    hvd.init(process_sets=[some])
    rank, size = hvd.rank(), hvd.size()
    mine = {"rank": rank, "odd": [_Odd(rank)], "array": np.arange(rank), "none": None}
    for root in range(size):
        got = hvd.broadcast_object(mine, root_rank=root)
        assert got["rank"] == root and got["odd"] == [_Odd(root)] and len(got["array"]) == root
    assert hvd.broadcast_object(b"" if rank == 0 else b"x") == b""
    assert hvd.broadcast_object_fn(root_rank=1, name="fn")(rank) == 1
    assert hvd.allgather_object("x" * rank) == ["x" * r for r in range(size)]
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        assert hvd.broadcast_object(rank, 2, session=session) == 2
        assert hvd.allgather_object(rank, session=session) == list(range(size))
    if some.included():
        assert hvd.allgather_object(rank, process_set=some) == [0, 2]
        assert hvd.broadcast_object(rank, 2, process_set=some) == 2
    else:
        with pytest.raises(tf.errors.InvalidArgumentError, match="not in process set"):
            hvd.allgather_object(rank, process_set=some)
    with pytest.raises(tf.errors.FailedPreconditionError, match="root_rank"):
        hvd.broadcast_object(rank, root_rank=min(rank, 1))
    big = np.random.default_rng(3).bytes(100_000_000) if rank == 0 else None
    assert len(hvd.broadcast_object(big)) == 100_000_000


def test_objects():
    run_ranks(_objects, 3, timeout_s=120)


_STATUS_CC = Path(__file__).parents[2] / "tf_ops" / "adapters" / "tf" / "status.cc"


def _classes() -> dict[int, str]:
    """Returns what an object function raises for each code of the core."""
    from horovod.common import core
    from horovod.tensorflow import objects

    classes = {}
    for code in range(core.CANCELLED, core.NOT_INITIALIZED + 1):
        with pytest.raises(Exception, match="text") as caught, objects._as_op_errors():
            raise core.CoreError(code, "text")
        classes[code] = caught.type.__name__
    return classes


def test_errors_are_those_of_ops():
    from horovod.common import core

    text = _STATUS_CC.read_text()
    wanted = {}
    for cases, error in re.findall(r"((?: *case HVD_\w+:\n)+) *return absl::(\w+)\(", text):
        for code in re.findall(r"HVD_(\w+)", cases):
            # An op's UnknownError is a HorovodInternalError in eager code.
            lost = error == "UnknownError"
            wanted[getattr(core, code)] = "HorovodInternalError" if lost else error
    assert "default:\n      return absl::InternalError" in text
    assert len(wanted) == 9
    wanted[core.INTERNAL] = "InternalError"
    assert run_ranks(_classes, 1) == [wanted]


def _in_place() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    rank = hvd.rank()

    def fresh():
        return [
            tf.Variable(float(rank)),
            tf.Variable([rank, 7], dtype=tf.int64),
            tf.Variable([[rank == 1]]),
            tf.Variable(tf.zeros([0, 2])),
        ]

    def check(values):
        assert [np.asarray(v).tolist() for v in values] == [1.0, [1, 7], [[True]], []]

    variables = fresh()
    before = variables[1].read_value()  # holds the memory: it must not change
    alias = tf.identity(variables[1])
    assert hvd.broadcast_(variables, root_rank=1) is None
    check(variables)
    assert before.numpy().tolist() == [rank, 7] and alias.numpy().tolist() == [rank, 7]
    variables = fresh()
    assert hvd.broadcast_variables(variables, 1, inplace=True) is None
    check(variables)
    variables = fresh()
    tf.function(lambda: hvd.broadcast_(variables, 1), autograph=False)()
    check(variables)
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        made = [
            v1.get_variable("a", initializer=float(rank), use_resource=False),
            v1.get_variable("b", initializer=[rank, 7], use_resource=False, dtype=tf.int32),
            v1.get_variable("c", initializer=[[rank == 1]], use_resource=True),
        ]
        operation = hvd.broadcast_(made, 1)
        last = hvd.broadcast_(made[2:], 1)
        # A variable without a value is named, on the rank that has it and on the others.
        if rank == 0:
            session.run([v.initializer for v in made[:2]])
            with pytest.raises(tf.errors.InvalidArgumentError, match="c:0"):
                session.run(last)
        else:
            session.run(v1.global_variables_initializer())
            with pytest.raises(tf.errors.FailedPreconditionError, match=r"c:0.*rank 0"):
                session.run(last)
        session.run(v1.global_variables_initializer())
        session.run(operation)
        assert [v.tolist() for v in session.run(made)] == [1.0, [1, 7], [[True]]]


@pytest.mark.smoke
def test_broadcast_in_place():
    run_ranks(_in_place, 3, timeout_s=60)
