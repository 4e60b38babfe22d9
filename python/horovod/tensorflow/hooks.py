"""Session hooks."""

from __future__ import annotations

import tensorflow as tf

from horovod.tensorflow.collectives import on_device
from horovod.tensorflow.functions import broadcast_global_variables

__all__ = ["BroadcastGlobalVariablesHook"]


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):
    """Gives all ranks the root's variables when a session begins.

    Use it on every rank.  The session has then initialized the variables, or restored them: when
    the root alone has a checkpoint, its values, optimizer slots and global step go to all.

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
        if self.bcast_op is None or self.bcast_op.graph is not tf.compat.v1.get_default_graph():
            with on_device(self.device):
                self.bcast_op = broadcast_global_variables(self.root_rank)

    def after_create_session(
        self, session: tf.compat.v1.Session, coord: tf.train.Coordinator
    ) -> None:
        """Runs the broadcasts.

        Args:
          session: with its variables initialized or restored.
          coord: of the session's threads; not used.
        """
        session.run(self.bcast_op)
