"""The session hook that gives all ranks the same start."""

from __future__ import annotations

import sys

import tensorflow as tf

from horovod.common import core
from horovod.tensorflow.collectives import on_device
from horovod.tensorflow.functions import broadcast_global_variables

__all__ = ["BroadcastGlobalVariablesHook", "forget_ended_training", "skips_evaluation"]


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
        forget_ended_training()
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
                _ended_before[:] = ["trained nothing"]
            elif not skips_evaluation(error):
                raise
            coord.request_stop()


# Not empty where a training of this process has ended before its first step; one more where the
# consequence for evaluations was said.
_ended_before: list[str] = []


def forget_ended_training() -> None:
    """Forgets a training that has ended before its first step, if `init()` was called since."""
    if core.failure()[0] == core.OK:
        _ended_before.clear()


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
    if not _ended_before or not _left_in_order():
        return False
    if len(_ended_before) == 1:  # not said yet
        _say_why("nothing was trained, and nothing is evaluated", error)
        _ended_before.append("said")
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
