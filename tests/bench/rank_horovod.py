"""The rank program's side of `horovod.tensorflow`: ours and the peer's, by what both have.

Nothing here knows which of the two is installed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import tensorflow as tf

import horovod.tensorflow as hvd
from tests.bench import rank_values
from tests.bench.cases import Case
from tests.bench.errors import WrongResult
from tests.bench.rank_backend import PARTS, Work
from tests.bench.rank_steps import StepWork

__all__ = ["backend"]

_CHECK_FACTOR = 2  # so that what is left in a recycled buffer from earlier is not right by chance


class _Horovod:
    """The backend; see `rank_backend.Backend`."""

    def init(self) -> tuple[int, int]:
        hvd.init()
        return hvd.rank(), hvd.size()

    def first_op(self) -> None:
        total = hvd.allreduce(tf.ones([1]), op=hvd.Sum, name="first op").numpy()
        if total[0] != hvd.size():
            raise WrongResult(f"the first op gave {total[0]}, not {hvd.size()}")

    def can(self, case: Case) -> bool:
        if case.mode == "step":
            return hasattr(hvd, "DistributedGradientTape")
        if not hasattr(hvd, case.collective):
            return False
        try:
            with tf.Graph().as_default():
                tensor = tf.zeros([hvd.size()], case.dtype)
                _collective(case, tensor, 0)
        except (TypeError, ValueError, NotImplementedError):  # not of this dtype
            return False
        return True

    def prepare(self, case: Case) -> Work:
        if case.mode == "step":
            return StepWork(hvd, case)
        return (_EagerWork if case.mode == "eager" else _SessionWork)(case)

    def end(self) -> None:
        hvd.shutdown()


def backend() -> _Horovod:
    """Returns the backend."""
    return _Horovod()


def _collective(case: Case, tensor: Any, index: int) -> Any:
    """The collective op of one tensor; its name is the same in every iteration."""
    name = re.sub(r"[^A-Za-z0-9]+", "_", f"{case.name} {index}")
    if case.collective in ("allreduce", "reducescatter"):
        return getattr(hvd, case.collective)(tensor, op=hvd.Sum, name=name)
    if case.collective == "broadcast":
        return hvd.broadcast(tensor, 0, name=name)
    result = getattr(hvd, case.collective)(tensor, name=name)
    # An alltoall may also return how much came from each rank.
    return result[0] if isinstance(result, (tuple, list)) else result


def _as_written() -> Any:
    """A session's configuration in which no op is left out.

    Nobody reads the results in the timed runs.  TensorFlow's optimizer would make nothing of a
    collective that is not declared stateful, and the session would only seem to run it.
    """
    config = tf.compat.v1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return config


class _EagerWork:
    """One call after the other, each on the same tensor."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._inputs = [
            tf.cast(tf.constant(values), case.dtype)
            for values in rank_values.inputs(case, hvd.rank())
        ]

    def runner(self, part: str) -> Callable[[], object]:
        return lambda: self._run(part, self._inputs)

    def check(self, part: str) -> None:
        got = self._run(part, [tensor * _CHECK_FACTOR for tensor in self._inputs])
        arrays = [tensor.numpy() for tensor in got]
        rank_values.check(self._case, part, hvd.rank(), hvd.size(), arrays, _CHECK_FACTOR)

    def close(self) -> None:
        self._inputs = []

    def _run(self, part: str, inputs: list[Any]) -> list[Any]:
        if part == "baseline":
            return inputs
        return [_collective(self._case, tensor, index) for index, tensor in enumerate(inputs)]


class _SessionWork:
    """The parts of a case in one graph, over the same variables; the baseline is the inputs alone.

    An input is a variable times a factor that only the session knows, so that the collective gets
    a fresh buffer in each iteration, as it gets a gradient.
    """

    def __init__(self, case: Case) -> None:
        self._case = case
        with tf.Graph().as_default() as graph:
            factor = tf.Variable(tf.ones([], case.dtype), trainable=False)
            holders = [tf.compat.v1.placeholder(tf.float32, shape) for shape in case.shapes]
            variables = [
                tf.Variable(tf.cast(holder, case.dtype), trainable=False) for holder in holders
            ]
            fresh = [variable * factor for variable in variables]
            collectives = [_collective(case, tensor, index) for index, tensor in enumerate(fresh)]
            outputs = {"gross": collectives, "baseline": fresh}
            groups = {part: tf.group(*(out.op for out in outputs[part])) for part in PARTS}
            new_factor = tf.compat.v1.placeholder(case.dtype, [])
            multiply_by = factor.assign(new_factor)
            self._session = tf.compat.v1.Session(graph=graph, config=_as_written())
            values = rank_values.inputs(case, hvd.rank())
            self._session.run(
                [variable.initializer for variable in (factor, *variables)],
                feed_dict=dict(zip(holders, values)),
            )
            self._multiply_by = self._session.make_callable(multiply_by.op, feed_list=[new_factor])
            self._run = {part: self._session.make_callable(groups[part]) for part in PARTS}
            self._fetch = {part: self._session.make_callable(outputs[part]) for part in PARTS}

    def runner(self, part: str) -> Callable[[], object]:
        run: Callable[[], object] = self._run[part]
        return run

    def check(self, part: str) -> None:
        self._multiply_by(_CHECK_FACTOR)
        got = self._fetch[part]()
        self._multiply_by(1)
        rank_values.check(self._case, part, hvd.rank(), hvd.size(), got, _CHECK_FACTOR)

    def close(self) -> None:
        self._run, self._fetch = {}, {}
        self._session.close()
