"""The session hook that shows a training in TensorBoard."""

from __future__ import annotations

import os
import re
import warnings
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from horovod.common import basics
from horovod.tensorflow.arguments import is_variable, require_whole_number
from horovod.tensorflow.upstream import NO_COLLECTIVES, collectives, upstream
from horovod.tensorflow.warned_once import warn_once

__all__ = ["TensorBoardHook"]

# The label that TensorFlow gives a node of a trace: "name = Type(inputs)".
_COLLECTIVE = re.compile(r" = Horovod(\w+)\(")

# In microseconds, as TensorFlow's traces have them.
_Span = tuple[float, float]


class TensorBoardHook(tf.compat.v1.train.SessionRunHook):
    """Writes how a training goes, on rank 0, for TensorBoard to show.

    Use it on every rank; the others write nothing.  What it writes, by the global step:

      loss                         of rank 0's own batch
      global_step/sec              since it wrote last
      collective_seconds/all       in which a collective of the step was on its way: it waited for
                                   other ranks, or ran
      collective_seconds/allreduce and so on: the same for one kind

    Pass a global step to `minimize(loss, global_step=...)`.  Where the graph has none, or nobody
    counts on it, which a warning says, the runs of the session are counted instead.

    Example:
      >>> import glob, tempfile
      >>> folder = tempfile.TemporaryDirectory()
      >>> with tf.Graph().as_default():
      ...     loss = tf.reduce_sum(tf.compat.v1.get_variable("w", initializer=[3.0, 4.0]) ** 2)
      ...     step = tf.compat.v1.train.create_global_step()
      ...     optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)
      ...     train = optimizer.minimize(loss, global_step=step)
      ...     hook = hvd.TensorBoardHook(folder.name, save_steps=1, loss=loss)
      ...     with tf.compat.v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
      ...         _ = session.run(train)
      >>> len(glob.glob(f"{folder.name}/events*"))  # on rank 0
      1
    """

    def __init__(
        self,
        logdir: str,
        save_steps: int = 100,
        *,
        loss: tf.Tensor | str | None = None,
        collective_times: bool = False,
    ) -> None:
        """Makes a hook.

        Args:
          logdir: folder of the event file; made if missing, on rank 0.
          save_steps: how many steps lie between two writings, >= 1.
          loss: a scalar tensor, or its name; of this rank's batch, since rank 0 alone fetches it.
            Default: the sum of the collection
            `tf.compat.v1.GraphKeys.LOSSES`, where `tf.compat.v1.losses` and Estimator put theirs;
            one from which another of the collection is computed counts in that one alone.  When
            nothing is there, no loss is written, and a warning says so.
          collective_times: whether to write the times of collectives.  The steps that are written
            are traced for that, which makes these slower.

        Raises:
          ValueError: `logdir` is no path; `save_steps` is no whole number above 0; `loss` is no
            tensor and no name; or `init()` was not called.
        """
        super().__init__()
        if not isinstance(logdir, (str, os.PathLike)) or not os.fspath(logdir):
            raise ValueError(f"TensorBoardHook: logdir={logdir!r}; pass the path of a folder")
        require_whole_number("TensorBoardHook", "save_steps", save_steps)
        if loss is not None and not isinstance(loss, (str, tf.Tensor)) and not is_variable(loss):
            raise ValueError(
                f"TensorBoardHook: loss={loss!r}; pass a tensor of the graph, or its name: the "
                "hook fetches it when it writes"
            )
        self._writes = basics.rank() == 0
        self._logdir = logdir
        self._given_loss = loss
        self._collective_times = collective_times
        self._save_steps = save_steps
        self._timer = tf.compat.v1.train.SecondOrStepTimer(every_steps=save_steps)
        self._fetches: dict[str, Any] = {}
        self._writer: Any = None
        self._step: int | None = None  # after the last run, or less; None: not known yet
        self._is_due = False
        self._runs = 0
        self._first: tuple[int, int] | None = None  # global step and runs when it was first read
        self._moves = False  # the global step, as far as is known

    def begin(self) -> None:
        """Finds loss and global step.

        Raises:
          ValueError: there is no such loss, or it is no real scalar of the graph; or, on all
            ranks, it is computed from a collective that the training does not need.
        """
        step = tf.compat.v1.train.get_global_step()
        self._fetches = {} if step is None else {"step": step}
        loss = self._find_loss(tf.compat.v1.get_default_graph())
        self._step = self._first = None
        self._runs, self._moves = 0, False
        self._timer.reset()
        if not self._writes:
            return
        if loss is None:
            warnings.warn(
                "TensorBoardHook: no loss is written, since the collection LOSSES is empty; pass "
                "loss=, a tensor or its name",
                RuntimeWarning,
                stacklevel=2,
            )
        else:
            self._fetches["loss"] = loss
        self._writer = tf.compat.v1.summary.FileWriterCache.get(self._logdir)

    def _find_loss(self, graph: tf.Graph) -> tf.Tensor | None:
        loss = self._given_loss
        if loss is None:
            losses = _outermost(tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.LOSSES))
        elif isinstance(loss, str):
            try:
                losses = [graph.get_tensor_by_name(loss if ":" in loss else f"{loss}:0")]
            except (KeyError, ValueError) as error:
                raise ValueError(
                    f"TensorBoardHook: loss={loss!r}: the graph has no such tensor ({error})"
                ) from None
        else:
            losses = [loss]
        for loss in losses:
            # Of an eager tensor there is none.
            if getattr(loss, "graph", None) is not graph:
                raise ValueError(
                    f"TensorBoardHook: the loss {loss!r} is not of the graph that is trained; make "
                    "it there, or pass its name"
                )
            dtype = loss.dtype.base_dtype
            if not (dtype.is_floating or dtype.is_integer or dtype.is_bool):
                what = "the variable itself" if dtype == tf.resource else "a tensor"
                raise ValueError(
                    f"TensorBoardHook: the loss '{loss.name}' is of dtype {dtype.name}, and one "
                    f"number is due; pass {what}, or the name of its value, such as 'loss:0'"
                )
            if loss.shape.rank not in (None, 0):
                raise ValueError(
                    f"TensorBoardHook: the loss '{loss.name}' has shape {loss.shape}, and one "
                    "number is due; pass loss=tf.reduce_mean(...)"
                )
            _refuse_collectives(loss)
        with graph.as_default():
            return tf.add_n([tf.cast(loss, tf.float32) for loss in losses]) if losses else None

    def before_run(
        self, run_context: tf.compat.v1.train.SessionRunContext
    ) -> tf.compat.v1.train.SessionRunArgs | None:
        """Asks for what is to be written after this run, if anything is.

        Args:
          run_context: not used.

        Returns:
          What the session is to run besides.
        """
        if not self._writes:
            return None
        self._is_due = self._step is None or self._timer.should_trigger_for_step(self._step + 1)
        if not self._is_due:
            step = {name: fetch for name, fetch in self._fetches.items() if name == "step"}
            return tf.compat.v1.train.SessionRunArgs(step)
        options = None
        if self._collective_times:
            options = tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.SOFTWARE_TRACE)
        return tf.compat.v1.train.SessionRunArgs(self._fetches, options=options)

    def after_run(
        self,
        run_context: tf.compat.v1.train.SessionRunContext,
        run_values: tf.compat.v1.train.SessionRunValues,
    ) -> None:
        """Writes what is due.

        Args:
          run_context: with the session.
          run_values: of what `before_run` asked for.
        """
        if not self._writes:
            return
        self._runs += 1
        if not self._is_due:
            # What was fetched may be of before this run's update.  Runs that train nothing make
            # this too large, which is mended before anything is written.
            assert self._step is not None
            self._step = max(self._step + 1, int(run_values.results.get("step", 0)))
            return
        step = self._step = self._step_after(run_context.session)
        if not self._timer.should_trigger_for_step(step):
            return
        values = {}
        if "loss" in run_values.results:
            values["loss"] = float(run_values.results["loss"])
        elapsed_s, elapsed_steps = self._timer.update_last_triggered_step(step)
        if elapsed_s:
            values["global_step/sec"] = elapsed_steps / elapsed_s
        if self._collective_times:
            values.update(_collective_seconds(run_values.run_metadata.step_stats))
        summary = tf.compat.v1.Summary()
        for tag, value in values.items():
            summary.value.add(tag=tag, simple_value=value)
        self._writer.add_summary(summary, step)

    def _step_after(self, session: tf.compat.v1.Session) -> int:
        """Returns the global step after a run, or what stands for it."""
        if "step" not in self._fetches:
            return self._runs
        step = int(session.run(self._fetches["step"]))
        if self._first is None:
            self._first = (step, self._runs)
        first, runs_then = self._first
        runs = self._runs - runs_then
        self._moves |= step != first
        if self._moves or runs < self._save_steps:
            return step
        warn_once(
            f"TensorBoardHook: the global step stays {step} while the session runs; pass "
            "global_step=tf.compat.v1.train.get_or_create_global_step() to minimize(); until the "
            "step moves, runs are counted in its place"
        )
        return step + runs

    def end(self, session: tf.compat.v1.Session) -> None:
        """Brings everything to the file.

        Args:
          session: not used.
        """
        if self._writes:
            self._writer.flush()


def _outermost(losses: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Returns the losses, each once, but for those from which another one is computed."""
    distinct = list({loss.ref(): loss for loss in losses}.values())
    inner = {
        source.ref()
        for operation in upstream([loss.op for loss in distinct], control=False)
        for source in operation.inputs
    }
    return [loss for loss in distinct if loss.ref() not in inner]


def _refuse_collectives(loss: tf.Tensor) -> None:
    """Raises ValueError if rank 0, which alone fetches a loss, would wait for the others then.

    Collectives that the training operations need as well run on every rank.
    """
    train_ops = loss.graph.get_collection(tf.compat.v1.GraphKeys.TRAIN_OP)
    everywhere = upstream([getattr(train_op, "op", train_op) for train_op in train_ops], True)
    alone = collectives(upstream([loss.op], True) - everywhere)
    if alone:
        operation = min(alone, key=lambda one: one.name)
        raise ValueError(
            f"TensorBoardHook: the loss '{loss.name}' is computed from '{operation.name}' "
            f"({alone[operation]}), a collective that no operation of the collection TRAIN_OP "
            "needs; rank 0 alone fetches the loss, and would wait there for the others; pass the "
            "loss of this rank's batch, without the collective"
        )


def _collective_seconds(step_stats: Any) -> dict[str, float]:
    """Returns the times of collectives in the trace of a step, by their tags."""
    spans: dict[str, list[_Span]] = defaultdict(list)
    for device in step_stats.dev_stats:
        for node in device.node_stats:
            found = _COLLECTIVE.search(node.timeline_label)
            if found and found.group(1) not in NO_COLLECTIVES:
                kind = re.sub(r"(?<!^)(?=[A-Z])", "_", found.group(1)).lower()
                begin_us = node.all_start_micros
                span = (begin_us, begin_us + node.all_end_rel_micros)
                spans[kind].append(span)
                spans["all"].append(span)
    return {f"collective_seconds/{kind}": _covered_us(of) / 1e6 for kind, of in spans.items()}


def _covered_us(spans: Iterable[_Span]) -> float:
    """Returns how long at least one of the spans lasted."""
    covered, until = 0.0, 0.0
    for begin, end in sorted(spans):
        covered += max(0.0, end - max(begin, until))
        until = max(until, end)
    return covered
