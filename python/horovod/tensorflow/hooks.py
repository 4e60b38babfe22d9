"""The session hook that gives all ranks the same start."""

from __future__ import annotations

import sys
from typing import Any

import tensorflow as tf

from horovod.common import core
from horovod.common.process_sets import global_process_set
from horovod.tensorflow.collectives import on_device
from horovod.tensorflow.functions import broadcast_global_variables

__all__ = ["BroadcastGlobalVariablesHook", "skips_evaluation"]


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):
    """Gives all ranks the root's variables when a session begins.

    Use it on every rank, as the first of a program's hooks: what a later one looks at then, such as
    the global step from which `StopAtStepHook(num_steps=...)` counts, is the root's.  The session
    has then initialized the variables, or restored them: when the root alone has a checkpoint, its
    values, optimizer slots and global step go to all.

    A rank may find that its training is done before it begins: Estimator.train returns at once
    where a checkpoint has reached `max_steps`.  When that rank then ends in order, the others, who
    wait here, say so in one line and train no step: the session's `should_stop()` is True.  In an
    evaluation after that it is too, so that it sees no data.

    One hook may serve several graphs, one after another.

    Example:
      >>> stop = tf.compat.v1.train.StopAtStepHook(last_step=1)
      >>> hooks = [hvd.BroadcastGlobalVariablesHook(0), stop]
      >>> with tf.Graph().as_default():
      ...     w = tf.compat.v1.get_variable("w", initializer=float(hvd.rank()))
      ...     step = tf.compat.v1.train.create_global_step().assign_add(1)
      ...     with tf.compat.v1.train.MonitoredTrainingSession(hooks=hooks) as session:
      ...         while not session.should_stop():
      ...             value, _ = session.run([w, step])
      >>> value  # on every rank
      0.0
    """

    def __init__(self, root_rank: int, device: str = "") -> None:
        """Makes a hook.

        Args:
          root_rank: whose values; in [0, size).
          device: where to place the broadcasts; default: as TensorFlow decides.
        """
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        self.bcast_op: tf.Operation | None = None

    def begin(self) -> None:
        """Adds the broadcasts to the graph, which is not final yet."""
        if self.bcast_op is None or self.bcast_op.graph is not tf.compat.v1.get_default_graph():
            with on_device(self.device):
                self.bcast_op = broadcast_global_variables(self.root_rank)

    def after_create_session(
        self, session: tf.compat.v1.Session, coord: tf.train.Coordinator
    ) -> None:
        """Runs the broadcasts.

        Args:
          session: with its variables initialized or restored.
          coord: of the session's threads; told to stop when there is nothing to train or evaluate.

        Raises:
          tf.errors.UnknownError: a rank was lost; or one has left, and this session does not train
            with a DistributedOptimizer, nor did one before it for that reason.
        """
        try:
            session.run(self.bcast_op)
        except tf.errors.UnknownError as error:
            # Out of here the error would end the program: a session heeds the end of training in
            # its steps alone.
            if _trains(session.graph) and _left_in_order():
                _say_why("training ends before its first step", error)
                _ended_under[:] = [global_process_set.ranks, False]
            elif not skips_evaluation(error):
                raise
            coord.request_stop()


# The `global_process_set.ranks` under which a training ended before its first step: each init()
# makes a new list.  And whether its consequence for evaluations was said.
_ended_under: list[Any] = [None, False]


def _left_in_order() -> bool:
    """Returns whether a collective that failed did so because a rank has ended in order."""
    return core.failure()[0] in (core.OK, core.SHUTDOWN)


def skips_evaluation(error: tf.errors.OpError) -> bool:
    """Says so in one line if an evaluation is to go without the other ranks.

    That is one after a training that ended before its first step, as `train_and_evaluate` has it:
    the other ranks have nothing to evaluate.

    Args:
      error: of a collective of the evaluation.

    Returns:
      False if the error stands.
    """
    if _ended_under[0] is not global_process_set.ranks or not _left_in_order():
        return False
    if not _ended_under[1]:
        _say_why("nothing was trained, and nothing is evaluated", error)
        _ended_under[1] = True
    return True


def _say_why(what: str, error: tf.errors.OpError) -> None:
    reason = core.failure()[1] or error.message.splitlines()[0]
    print(f"horovod: {what}: {reason}", file=sys.stderr, flush=True)


def _trains(graph: tf.Graph) -> bool:
    """Returns whether a graph is that of a training loop which may end early.

    It has gradients that end such a loop (see `collectives.combine`), and is no evaluation, whose
    metrics would then be of no data.
    """
    if graph.get_collection(tf.compat.v1.GraphKeys.EVAL_STEP):
        return False
    return any(
        op.type.startswith("Horovod") and op.node_def.attr["gradient"].b
        for op in graph.get_operations()
    )
