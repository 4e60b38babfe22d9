"""What goes wrong on one rank before its op runs is told to the ranks that wait for it."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.harness.pool import run_ranks

_SOON_S = 5.0
_RAGGED = [[1.0], [2.0, 3.0]]


class _Case(NamedTuple):
    """A call with arguments that are right, and what is wrong with those of rank 1.

    Attributes:
      function: of hvd; called with a name, too.
      right: its arguments.
      wrong: those that rank 1 has instead.
      kind: the error on rank 1.
    """

    function: Any
    right: dict[str, Any]
    wrong: dict[str, Any]
    kind: str = "ValueError"


class _Fails:
    """A compression that fails when it is used for the n-th time."""

    def __init__(self, at: int = 1) -> None:
        self._left = at

    def compress(self, tensor: Any) -> tuple[Any, None]:
        self._left -= 1
        if not self._left:
            raise KeyError("no code book")
        return tensor, None

    def decompress(self, tensor: Any, ctx: None) -> Any:
        return tensor


class _FailsToUndo(_Fails):
    """A compression that fails when its work is undone."""

    def __init__(self) -> None:
        super().__init__(at=-1)

    def decompress(self, tensor: Any, ctx: None) -> Any:
        raise KeyError("no code book")


def _of_tensors() -> Iterator[_Case]:
    import tensorflow as tf

    import horovod.tensorflow as hvd
    from horovod.tensorflow import mpi_ops

    ones = {"tensor": np.ones([2, 2], np.float32)}
    slices = tf.IndexedSlices(tf.ones([2, 1]), tf.constant([0, 2]), tf.constant([3, 1]))
    ragged, rows = {"tensor": _RAGGED}, {"tensor": slices}
    key, missing = "KeyError", "NotImplementedError"

    def unnamed(tensor: Any, name: str) -> Any:
        return hvd.allreduce(tensor)

    for function in (hvd.allreduce, unnamed, hvd.allgather, hvd.alltoall, hvd.reducescatter):
        yield _Case(function, ones, ragged)
    yield _Case(hvd.broadcast, ones | {"root_rank": 0}, ragged)
    for root in (None, "0"):
        yield _Case(
            hvd.broadcast, ones | {"root_rank": 0}, {"root_rank": root}, "InvalidArgumentError"
        )
    for splits in (["a", "b"], [0.5, 1.5], object()):
        wrong = {"splits": splits}
        yield _Case(hvd.alltoall, ones | {"splits": [1, 1]}, wrong, "InvalidArgumentError")
    yield _Case(hvd.alltoall, ones, rows, missing)
    yield _Case(hvd.reducescatter, ones, rows, missing)
    for function in (hvd.allreduce, hvd.reducescatter, mpi_ops._allreduce):
        yield _Case(function, ones, {"op": 77})
        yield _Case(function, ones, {"prescale_factor": "half"})
        yield _Case(function, ones, {"postscale_factor": None}, "TypeError")
    for function in (hvd.allreduce, hvd.reducescatter):
        yield _Case(function, ones, {"compression": 3})
        yield _Case(function, ones, {"compression": _Fails()}, key)
        yield _Case(function, ones, {"device_dense": "nowhere"})
    yield _Case(hvd.allreduce, ones, {"average": True, "op": hvd.Sum})

    yield _Case(hvd.allreduce, rows, {"op": 77})
    yield _Case(hvd.allreduce, rows, {"op": hvd.Min}, missing)
    yield _Case(hvd.allreduce, rows, {"prescale_factor": 2.0}, missing)
    yield _Case(mpi_ops._allreduce, rows, {"postscale_factor": "half"}, missing)
    yield _Case(hvd.allreduce, rows, {"compression": _Fails()}, key)
    chooses = "HOROVOD_SPARSE_AUTO_DENSE" in os.environ
    if chooses:  # then the first use is to find the size
        yield _Case(hvd.allreduce, rows, {"compression": _Fails(at=2)}, key)
    yield _Case(hvd.allreduce, rows, {"device_sparse": "nowhere"})
    odd = tf.IndexedSlices(slices.values, tf.constant(["a", "b"]), slices.dense_shape)
    kind = "UnimplementedError" if chooses else "InvalidArgumentError"  # of a cast, or the gather
    yield _Case(hvd.allreduce, rows, {"tensor": odd}, kind)
    odd = tf.IndexedSlices(_RAGGED, slices.indices, slices.dense_shape)
    yield _Case(hvd.allreduce, rows, {"tensor": odd})

    variable = tf.Variable([1.0])
    pairs = {"tensor": [(None, variable), (tf.ones([1]), variable)]}
    yield _Case(hvd.allreduce, pairs, {"tensor": [(None, variable), (_RAGGED, variable)]})
    yield _Case(hvd.allreduce, pairs, {"op": 77})


def _of_groups() -> Iterator[_Case]:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    ones, whole = np.ones([2, 2], np.float32), np.ones([2], np.int32)
    slices = tf.IndexedSlices(tf.ones([2, 1]), tf.constant([0, 2]), tf.constant([3, 1]))
    one, two = {"tensors": [ones, ones]}, {"tensors": [ones, whole]}
    mixed = {"tensors": [ones, slices]}

    for function in (hvd.grouped_allreduce, hvd.grouped_allgather, hvd.grouped_reducescatter):
        yield _Case(function, one, {"tensors": [ones, _RAGGED]})
        yield _Case(function, two, {"tensors": [_RAGGED, whole]})
        yield _Case(function, two, {"tensors": [ones, [[1], [2, 3]]]})
        yield _Case(function, one, {"tensors": None}, "TypeError")
    for function in (hvd.grouped_allreduce, hvd.grouped_reducescatter):
        for right in (one, two):
            yield _Case(function, right, {"op": 77})
            yield _Case(function, right, {"compression": 3})
        yield _Case(function, one, {"prescale_factor": "half"})
        yield _Case(function, one, {"compression": _Fails()}, "KeyError")
        yield _Case(function, two, {"compression": _Fails(at=2)}, "KeyError")
        yield _Case(function, one, {"device_dense": "nowhere"})
    yield _Case(hvd.grouped_reducescatter, one, mixed, "NotImplementedError")
    yield _Case(hvd.grouped_allreduce, mixed, {"op": 77})
    yield _Case(hvd.grouped_allreduce, mixed, {"postscale_factor": "half"}, "NotImplementedError")
    yield _Case(hvd.grouped_allreduce, mixed, {"tensors": [_RAGGED, slices]})


def _of_variables_and_objects() -> Iterator[_Case]:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    variables = [tf.Variable([1.0]), tf.Variable(2)]

    def give(root_rank: Any, name: str, **options: Any) -> None:
        hvd.broadcast_variables(variables, root_rank, **options)

    for options in ({}, {"inplace": True}):
        right = {"root_rank": 0, **options}
        yield _Case(give, right, {"root_rank": None}, "InvalidArgumentError")
    lock = {"obj": threading.Lock()}
    root_1 = {"obj": 1, "root_rank": 1}
    yield _Case(hvd.broadcast_object, root_1, lock, "TypeError")
    yield _Case(hvd.broadcast_object, root_1, {"root_rank": None}, "TypeError")
    yield _Case(hvd.allgather_object, {"obj": 1}, lock, "TypeError")


def _on_rank_1() -> list[tuple[str, str, str, str, float]]:
    """Makes each call; returns it, rank 1's class of error, this rank's error, and its seconds."""
    import horovod.tensorflow as hvd

    hvd.init()
    seen = []
    cases = [*_of_tensors(), *_of_groups(), *_of_variables_and_objects()]
    for number, case in enumerate(cases):
        what = f"{case.function.__name__} with {case.wrong}"
        name = f"x{number}"
        begin = time.monotonic()
        try:
            case.function(**{**case.right, **(case.wrong if hvd.rank() == 1 else {}), "name": name})
            error = AssertionError("no error")
        except Exception as caught:
            error = caught
        seconds = time.monotonic() - begin
        seen.append((what, case.kind, type(error).__name__, str(error), seconds))
        case.function(**case.right, name=name)
    return seen


def _check(ranks: list[list[tuple[str, str, str, str, float]]]) -> None:
    for other, wrong in zip(*ranks):
        what, kind, wrong_kind, reason, _ = wrong
        assert wrong_kind == kind, (what, wrong_kind, reason)
        _, _, other_kind, text, seconds = other
        assert other_kind == "FailedPreconditionError", (what, other_kind, text)
        assert "rank 1" in text and reason.split("\n")[0].split(" [Op:")[0][-40:] in text, what
        assert seconds < _SOON_S, what


def test_the_others_are_told_and_the_next_call_works():
    _check(run_ranks(_on_rank_1, 2, timeout_s=120))


def test_the_others_are_told_where_slices_may_become_dense():
    _check(run_ranks(_on_rank_1, 2, timeout_s=120, env={"HOROVOD_SPARSE_AUTO_DENSE": "1"}))


def _undone_on_rank_1() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    fine = _Fails(at=-1)
    slices = tf.IndexedSlices(tf.ones([2, 1]), tf.constant([0, 2]), tf.constant([3, 1]))
    for call in (
        lambda c: hvd.allreduce([1.0], name="x", compression=c),
        lambda c: hvd.grouped_allreduce([[1.0], [2]], name="g", compression=c),
        lambda c: hvd.allreduce(slices, name="s", compression=c),
    ):
        if hvd.rank() == 1:
            with pytest.raises(KeyError):
                call(_FailsToUndo())
        else:
            call(fine)
        call(fine)


def test_what_fails_after_the_call_is_this_ranks_alone():
    run_ranks(_undone_on_rank_1, 2)
    run_ranks(_undone_on_rank_1, 2, env={"HOROVOD_SPARSE_AUTO_DENSE": "1"})


def _objects_in_a_graph() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    lock, rank = threading.Lock(), hvd.rank()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for call in (
            lambda obj: hvd.broadcast_object(obj, 1, session),
            hvd.broadcast_object_fn(1, session),
            lambda obj: hvd.allgather_object(obj, session),
        ):
            try:
                call(lock if rank == 1 else rank)
                raise AssertionError("no error")
            except TypeError as error:
                assert rank == 1 and "pickle" in str(error)
            except tf.errors.FailedPreconditionError as error:
                assert rank != 1
                assert "rank 1" in str(error) and "_object.data" in str(error).replace(
                    "size", "data"
                )
                assert "cannot pickle" in str(error), error
            assert call(rank) in (1, [0, 1, 2])


def test_what_cannot_be_pickled_is_told_beside_a_session():
    run_ranks(_objects_in_a_graph, 3)


def _wrong_on_both() -> None:
    import horovod.tensorflow as hvd

    hvd.init()
    for number, case in enumerate([*_of_tensors(), *_of_groups(), *_of_variables_and_objects()]):
        name = f"x{number}"
        # What is wrong everywhere may be right, such as other factors, or objects of other ranks.
        with contextlib.suppress(Exception):
            case.function(**{**case.right, **case.wrong, "name": name})
        case.function(**case.right, name=name)


def test_the_next_call_works_where_all_were_wrong():
    run_ranks(_wrong_on_both, 2, timeout_s=120)
