"""Checking that all ranks hold the same variables.

Ranks that started alike and apply the same gradients stay alike, bit by bit.  Where they do not, a
rank has missed a broadcast, or does something by itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow import _compat, _raw
from horovod.tensorflow.arguments import is_variable, listed_variables, require_whole_number
from horovod.tensorflow.objects import allgather_object
from horovod.tensorflow.variables import label

__all__ = ["CheckConsistencyHook", "PeriodicCheck", "check_consistency"]

_WHO = "check_consistency"
_MAX_VALUES = 4  # of a variable that is shown itself rather than by its digest
_DIGEST_CHARS = 16  # of the digest in an error; the whole is compared
_WHAT_TO_DO = (
    "give all ranks the variables of one, after they were initialized or restored "
    "(hvd.broadcast_variables, BroadcastGlobalVariablesHook or -Callback), and reduce every "
    "gradient before it is applied; leave out of the list what may differ by rank, such as moving "
    "moments of batches and sources registered as local"
)


class _Record(NamedTuple):
    """What a rank says of one variable; records are compared as a whole."""

    name: str
    kind: str  # dtype and shape
    digest: str
    value: str  # '' unless it is short

    def content(self) -> str:
        """Returns what the variable holds, as a part of a sentence."""
        return f"{self.kind} {self.value or f'sha256 {self.digest[:_DIGEST_CHARS]}...'}"


def _bytes(value: np.ndarray[Any, Any]) -> Any:
    """Returns what the digest is of."""
    if value.dtype.kind in "OSU":  # strings: none of them runs into the next
        return repr(value.ravel().tolist()).encode()
    return np.ascontiguousarray(value).reshape(-1).view(np.uint8)


def _record(variable: Any, place: int, session: Any) -> _Record:
    inner = _compat.tensorflow_variable(variable)
    in_session = session is not None and (is_variable(inner) or isinstance(inner, tf.Tensor))
    value = np.asarray(session.run(inner) if in_session else inner)
    return _Record(
        name=label(variable) or f"variable {place}",  # eager tensors have no name
        kind=f"{value.dtype} {list(value.shape)}",
        digest=hashlib.sha256(_bytes(value)).hexdigest(),
        value=str(value.tolist()) if value.size <= _MAX_VALUES else "",
    )


def _session(given: Any) -> Any:
    """Returns the session to read from; None in eager code.

    Raises:
      ValueError: there is none, or what was given is none.
    """
    if given is not None:
        if not callable(getattr(given, "run", None)):
            raise ValueError(f"{_WHO}: session={given!r}; pass a session, or leave it out")
        return given
    if _compat.executing_eagerly():
        return None
    session = tf.compat.v1.get_default_session()
    if session is None:
        raise ValueError(
            f"{_WHO}: a graph's variables have values in a session only; pass session=, or call it "
            "beside the tf.function"
        )
    return session


def _records(variables: Iterable[Any], session: Any) -> list[_Record]:
    # One at a time: memory holds one more at most.
    found = [
        _record(variable, place, session)
        for place, variable in enumerate(listed_variables(_WHO, variables, values=True))
    ]
    if not found:
        raise ValueError(f"{_WHO}: no variables; build the model first")
    return found


def _listed(ranks: Sequence[int]) -> str:
    """Writes ascending ranks as "rank 3" or "ranks 0-2, 5"."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    text = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
    return f"rank {text}" if len(ranks) == 1 else f"ranks {text}"


def _sides(facts: Sequence[Any], ranks: Sequence[int]) -> dict[Any, str]:
    """Maps each different fact to the ranks that hold it, in the order of their first."""
    holders: dict[Any, list[int]] = {}
    for rank, fact in zip(ranks, facts):
        holders.setdefault(fact, []).append(rank)
    return {fact: _listed(holding) for fact, holding in holders.items()}


def _difference(everyone: Sequence[Sequence[_Record]], ranks: Sequence[int]) -> str:
    """Says what differs first.

    Args:
      everyone: each rank's records; not all are equal.
      ranks: whose they are.
    """
    shortest = min(len(records) for records in everyone)
    rows = list(zip(*everyone))
    differing = [place for place, row in enumerate(rows) if len(set(row)) > 1]
    if not differing:  # but some have more
        sides = _sides([len(records) for records in everyone], ranks)
        counts = ", ".join(f"{count} on {who}" for count, who in sides.items())
        longest = max(everyone, key=len)
        return (
            f"{_WHO} {longest[shortest].name!r}: it is not on every rank; the numbers of variables "
            f"are {counts}; build the same model on all ranks, and give its variables in the same "
            "order"
        )
    row = rows[differing[0]]
    names = _sides([record.name for record in row], ranks)
    if len(names) > 1:
        named = "; ".join(f"{name!r} on {who}" for name, who in names.items())
        return (
            f"{_WHO} {row[0].name!r}: variable {differing[0]} is {named}; build the same model on "
            "all ranks, and give its variables in the same order"
        )
    held = "; ".join(f"{record.content()} on {who}" for record, who in _sides(row, ranks).items())
    return (
        f"{_WHO} {row[0].name!r}: ranks differ: {held}; {len(differing)} of {len(rows)} variables "
        f"differ, this is the first; {_WHAT_TO_DO}"
    )


def check_consistency(
    variables: Iterable[Any],
    *,
    session: tf.compat.v1.Session | None = None,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Checks that all ranks hold the same variables: names, shapes, dtypes and every bit.

    All ranks call it at the same point of their training.  Every variable is copied to the host
    and goes through SHA-256, about a second per gigabyte.  While the ranks agree, 32 bytes of each
    travel; else a line per variable.

    Example:
      >>> v = tf.Variable([1.0, 2.0])
      >>> hvd.check_consistency([v])  # silent while all ranks hold the same

    Args:
      variables: of any kind (ref, resource, Keras), shape and dtype, in the same order on all
        ranks; at least one, initialized.  Tensors, arrays and numbers may be among them.
      session: where a graph's variables have their values; default: the default session.
      process_set: the ranks that are compared.

    Raises:
      tf.errors.FailedPreconditionError: on all ranks: they differ.  The text names the first
        variable that does, and the ranks that hold each value of it.  Also where another rank
        could not read its variables; the text names it and its reason.
      ValueError: no variables, or something that is none; no session in a graph; or `init()` was
        not called.
      HorovodInternalError: a rank was lost or has left.
    """
    _raw.require_init(_WHO)
    _raw.id_of(process_set, _WHO)
    records: list[_Record] = []
    failure: Exception | None = None
    try:
        records = _records(variables, _session(session))
    except Exception as error:  # whatever it is, the others must not wait for this rank
        failure = error
    digest = hashlib.sha256(repr(records).encode()).digest()
    reason = None if failure is None else f"{type(failure).__name__}: {failure}"
    heads = allgather_object((digest, reason), name=_WHO, process_set=process_set)
    if failure is not None:
        raise failure
    ranks = process_set.ranks or []
    for rank, (_, reason) in zip(ranks, heads):
        if reason is not None:
            raise tf.errors.FailedPreconditionError(
                None, None, f"{_WHO}: rank {rank} could not read its variables: {reason}"
            )
    if len({digest for digest, _ in heads}) > 1:
        everyone = allgather_object(records, name=_WHO, process_set=process_set)
        raise tf.errors.FailedPreconditionError(None, None, _difference(everyone, ranks))


class PeriodicCheck:
    """`check_consistency` in every n-th of its calls; what the hook and the callback share.

    Attributes:
      variables: which; None for those that the caller finds.
    """

    def __init__(
        self, who: str, every_n_steps: int, variables: Iterable[Any] | None, process_set: ProcessSet
    ) -> None:
        """Makes one that has counted no step.

        Args:
          who: begins the error's text.
          every_n_steps: >= 1.
          variables: as for `check_consistency`, or None.
          process_set: the ranks that are compared.

        Raises:
          ValueError: every_n_steps is no whole number above 0; or something is no variable.
        """
        require_whole_number(who, "every_n_steps", every_n_steps)
        self.variables = (
            None if variables is None else listed_variables(who, variables, values=True)
        )
        self._every_n_steps = every_n_steps
        self._process_set = process_set
        self._steps = 0

    def after_step(self, default: Callable[[], Iterable[Any]], session: Any) -> None:
        """Counts a step, and checks if it is time.

        Args:
          default: gives the variables where none were named.
          session: as for `check_consistency`.
        """
        self._steps += 1
        if self._steps % self._every_n_steps == 0:
            variables = default() if self.variables is None else self.variables
            check_consistency(variables, session=session, process_set=self._process_set)


class CheckConsistencyHook(tf.compat.v1.train.SessionRunHook):
    """Runs `check_consistency` every few steps of a session.

    Use it on every rank, for training only: all ranks must run as many steps.

    Example:
      >>> hooks = [hvd.CheckConsistencyHook(every_n_steps=100)]
      >>> with tf.Graph().as_default():
      ...     w = tf.compat.v1.get_variable("w", initializer=1.0)
      ...     with tf.compat.v1.train.SingularMonitoredSession(hooks=hooks) as session:
      ...         session.run(w)
      1.0
    """

    def __init__(
        self,
        every_n_steps: int,
        *,
        variables: Iterable[Any] | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        """Makes a hook.

        Args:
          every_n_steps: how many calls of `session.run` lie between two checks; >= 1.
          variables: as for `check_consistency`.  Default: the trainable variables of the graph;
            slots that differ show in these one step later.
          process_set: the ranks that are compared.

        Raises:
          ValueError: every_n_steps is no whole number above 0; or something is no variable.
        """
        super().__init__()
        self._check = PeriodicCheck("CheckConsistencyHook", every_n_steps, variables, process_set)

    def after_run(
        self,
        run_context: tf.compat.v1.train.SessionRunContext,
        run_values: tf.compat.v1.train.SessionRunValues,
    ) -> None:
        """Counts a step, and checks if it is time.

        Args:
          run_context: has the session and, by that, the graph.
          run_values: not used.
        """
        session = run_context.session
        with session.graph.as_default():
            self._check.after_step(tf.compat.v1.trainable_variables, session)
