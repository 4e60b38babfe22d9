"""The rank program's side of tf.distribute: MultiWorkerMirroredStrategy, its ring on the CPU."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context

from tests.bench import rank_values
from tests.bench.cases import Case
from tests.bench.errors import WrongResult
from tests.bench.rank_backend import PARTS, Work
from tests.bench.rank_place import place

__all__ = ["backend"]

_CHECK_FACTOR = 2.0
_HEARTBEAT_MS = 3_600_000


class _Distribute:
    """The backend; see `rank_backend.Backend`."""

    _strategy: Any

    def init(self) -> tuple[int, int]:
        here = place()
        os.environ["TF_CONFIG"] = json.dumps(
            {
                "cluster": {"worker": here.addresses},
                "task": {"type": "worker", "index": here.rank},
            }
        )
        _be_patient(len(here.addresses))
        self._strategy = tf.distribute.MultiWorkerMirroredStrategy(
            communication_options=tf.distribute.experimental.CommunicationOptions(
                implementation=tf.distribute.experimental.CommunicationImplementation.RING
            )
        )
        self._rank, self._size = here.rank, self._strategy.num_replicas_in_sync
        return self._rank, self._size

    def first_op(self) -> None:
        (total,) = _step(self._strategy, [tf.ones([1])], "gross")(1.0)
        if total.numpy()[0] != self._size:
            raise WrongResult(f"the first op gave {total.numpy()[0]}, not {self._size}")

    def can(self, case: Case) -> bool:
        # It has no broadcast, and hands a session's graph to nobody; what stands for a session
        # here is a tf.function.
        return case.collective == "allreduce" and (case.mode, case.dtype) == ("session", "float32")

    def prepare(self, case: Case) -> Work:
        return _FunctionWork(self._strategy, case, self._rank, self._size)

    def end(self) -> None:
        """Nothing: it has no way to leave in order."""


def backend() -> _Distribute:
    """Returns the backend."""
    return _Distribute()


def _be_patient(size: int) -> None:
    """Keeps TensorFlow from giving a stopped rank up after 10 s; there is no public way.

    Between turns all ranks are stopped.  What is not named here is as the strategy sets it.
    """
    config = tf.compat.v1.ConfigProto().experimental.coordination_config
    config.coordinated_job_list.add(name="worker", num_tasks=size)
    context.context().configure_coordination_service(
        service_type="standalone",
        service_leader="/job:worker/replica:0/task:0",
        heartbeat_timeout_in_ms=_HEARTBEAT_MS,
        coordinated_jobs=list(config.coordinated_job_list),
    )


def _step(strategy: Any, inputs: list[Any], part: str) -> Callable[[float], list[Any]]:
    """A function of the inputs' factor: the sums over all replicas, or the inputs alone."""

    def replica(factor: Any) -> Any:
        fresh = [tensor * factor for tensor in inputs]
        if part == "baseline":
            return fresh
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, fresh)

    def step(factor: Any) -> Any:
        return strategy.run(replica, (factor,))

    signature = [tf.TensorSpec([], tf.float32)]
    made: Callable[[float], list[Any]] = tf.function(step, input_signature=signature)
    return made


class _FunctionWork:
    """Both parts of a case, over the same variables."""

    def __init__(self, strategy: Any, case: Case, rank: int, size: int) -> None:
        self._case, self._rank, self._size = case, rank, size
        inputs = [tf.Variable(values) for values in rank_values.inputs(case, rank)]
        self._steps = {part: _step(strategy, inputs, part) for part in PARTS}

    def runner(self, part: str) -> Callable[[], object]:
        step, one = self._steps[part], tf.constant(1.0)
        return lambda: step(one)

    def check(self, part: str) -> None:
        got = [tensor.numpy() for tensor in self._steps[part](tf.constant(_CHECK_FACTOR))]
        rank_values.check(self._case, part, self._rank, self._size, got, int(_CHECK_FACTOR))

    def close(self) -> None:
        self._steps = {}
