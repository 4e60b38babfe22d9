"""Collectives in branches, loops, maps and functions: ranks match them whatever else a graph holds.

Everywhere one collective of each kind is called, on a number that is `element + rank`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.harness import ranks
from tests.harness.pool import run_ranks
from tests.parallel.modes import MODES, evaluate

# TensorFlow 2 builds functional loops and branches in a session's graph, too, unless told not to.
V1_CONTROL_FLOW = "session, v1 control flow"
ALL_MODES = (*MODES, V1_CONTROL_FLOW)

Call = Callable[[Any], Any]


def _of_each_kind(element: Any, named: bool = True) -> Any:
    """Returns the results of all kinds of collectives on this rank's number, each as a scalar."""
    import tensorflow as tf

    import horovod.tensorflow as hvd

    rank, size = hvd.rank(), hvd.size()

    def name(kind: str) -> str | None:
        return kind if named else None

    mine = element + float(rank)
    rows = tf.fill([size], mine)
    results = [
        [hvd.allreduce(mine, op=hvd.Sum, name=name("allreduce"))],
        hvd.grouped_allreduce([mine, 2 * mine], op=hvd.Sum, name=name("grouped_allreduce")),
        [hvd.allgather([mine], name=name("allgather"))],
        hvd.grouped_allgather([[mine], [2 * mine]], name=name("grouped_allgather")),
        [hvd.broadcast(mine, size - 1, name=name("broadcast"))],
        [hvd.alltoall(rows * tf.range(1.0, size + 1.0), name=name("alltoall"))],
        [hvd.reducescatter(rows, op=hvd.Sum, name=name("reducescatter"))],
        hvd.grouped_reducescatter([rows, 2 * rows], op=hvd.Sum, name=name("grouped_reducescatter")),
    ]
    barrier = hvd.barrier()
    with tf.control_dependencies([] if barrier is None else [barrier]):
        results.append([tf.identity(mine)])
    return tf.stack([tf.add_n([tf.reduce_sum(part) for part in parts]) for parts in results])


def _expected(element: float, rank: int, size: int) -> list[float]:
    """What `_of_each_kind` gives."""
    total = size * element + sum(range(size))
    last = element + size - 1
    mine = element + rank
    return [
        *[total, 3 * total],
        *[total, 3 * total],
        last,
        (rank + 1) * total,
        *[total, 3 * total],
        mine,
    ]


def _slope(rank: int, size: int) -> float:
    """The gradient of the sum of `_of_each_kind` with respect to this rank's number."""
    return (
        (1 + 3) * size  # of allreduces, the sum over the ranks
        + (1 + 3)  # of allgathers, the average of this rank's row
        + (rank == size - 1)  # of a broadcast, the average on the root
        + size * (size + 1) / 2  # of an alltoall, what each rank made of its row
        + (1 + 3) * size * size  # of reducescatters, `size` for each row
        + 1  # of the number itself
    )


# Each runs `call` somewhere, `one` being a tensor of 1, and returns the results as rows.


def _cond(call: Call, one: Any) -> Any:
    import tensorflow as tf

    taken = tf.cond(one > 0, lambda: call(one), lambda: call(one + 10), name="choice")
    other = tf.cond(one < 0, lambda: call(one), lambda: call(one + 20), name="other")
    return tf.stack([taken, other])


def _while_loop(call: Call, one: Any) -> Any:
    import tensorflow as tf

    def body(i: Any, results: Any) -> tuple[Any, Any]:
        return i + 1, results.write(i, call(one + tf.cast(i, tf.float32)))

    results = tf.TensorArray(tf.float32, 6)
    _, results = tf.while_loop(
        lambda i, _: i < 6, body, [0, results], parallel_iterations=4, name="loop"
    )
    return results.stack()


def _map_fn(call: Call, one: Any) -> Any:
    import tensorflow as tf

    return tf.map_fn(call, one + tf.range(6.0), parallel_iterations=4, name="mapped")


def _v1_map_fn(call: Call, one: Any) -> Any:
    import tensorflow as tf

    return tf.compat.v1.map_fn(call, one + tf.range(6.0), parallel_iterations=4, name="mapped")


def _function_twice(call: Call, one: Any) -> Any:
    import tensorflow as tf

    function = tf.function(call, autograph=False)
    with tf.name_scope("first"):
        first = function(one)
    with tf.name_scope("second"):
        second = function(one + 5)
    return tf.stack([first, second])


def _cond_in_loop(call: Call, one: Any) -> Any:
    import tensorflow as tf

    def branch(element: Any) -> Any:
        return tf.cond(
            element > 3, lambda: call(element), lambda: call(element + 10), name="choice"
        )

    return _while_loop(branch, one)


def _loop_in_cond(call: Call, one: Any) -> Any:
    import tensorflow as tf

    return tf.cond(
        one > 0, lambda: _map_fn(call, one), lambda: _map_fn(call, one + 30), name="choice"
    )


def _loop_in_loop(call: Call, one: Any) -> Any:
    import tensorflow as tf

    def inner(element: Any) -> Any:
        return tf.map_fn(call, element + tf.range(3.0), parallel_iterations=3, name="inner")

    outer = tf.map_fn(inner, one + 10 * tf.range(3.0), parallel_iterations=3, name="outer")
    return tf.concat(tf.unstack(outer, 3), 0)


def _function_in_loop(call: Call, one: Any) -> Any:
    import tensorflow as tf

    return _while_loop(tf.function(call, autograph=False), one)


def _loop_in_function_twice(call: Call, one: Any) -> Any:
    import tensorflow as tf

    function = tf.function(lambda element: _map_fn(call, element), autograph=False)
    with tf.name_scope("first"):
        first = function(one)
    with tf.name_scope("second"):
        second = function(one + 10)
    return tf.concat([first, second], 0)


# Each form, and the elements of its rows.
FORMS = {
    "cond": (_cond, [1, 21]),
    "while_loop": (_while_loop, [1, 2, 3, 4, 5, 6]),
    "map_fn": (_map_fn, [1, 2, 3, 4, 5, 6]),
    "compat.v1.map_fn": (_v1_map_fn, [1, 2, 3, 4, 5, 6]),
    "function twice": (_function_twice, [1, 6]),
    "cond in a loop": (_cond_in_loop, [11, 12, 13, 4, 5, 6]),
    "loop in a cond": (_loop_in_cond, [1, 2, 3, 4, 5, 6]),
    "loop in a loop": (_loop_in_loop, [1, 2, 3, 11, 12, 13, 21, 22, 23]),
    "function in a loop": (_function_in_loop, [1, 2, 3, 4, 5, 6]),
    "loop in a function, twice": (_loop_in_function_twice, [*range(1, 7), *range(11, 17)]),
}

# A session runs a function by itself unless it is told otherwise, and a collective in it does not
# know who called: two calls at once are an error (docs/ops.md).
CALLS = {"function twice", "function in a loop", "loop in a function, twice"}


def _more_on_rank_0(one: Any) -> list[Any]:
    """Ops of its own, so that what TensorFlow counts on this rank is ahead of the others."""
    import tensorflow as tf

    import horovod.tensorflow as hvd

    if hvd.rank() != 0:
        return []
    doubled = tf.function(lambda x: 2 * x, autograph=False)
    return [
        tf.add(tf.add(one, one), one),
        tf.cond(one > 5, lambda: one, lambda: -one),
        tf.while_loop(lambda i: i < 9, lambda i: [i + one], [one])[0],
        tf.map_fn(lambda x: x + one, one + tf.range(2.0)),
        doubled(one),
        doubled(doubled(one)),
    ]


def _evaluate(mode: str, build: Callable[[], Any], inlines: bool = False) -> Any:
    import tensorflow as tf

    config = tf.compat.v1.ConfigProto()
    config.graph_options.optimizer_options.do_function_inlining = inlines
    if mode != V1_CONTROL_FLOW:
        return evaluate(mode, build, config)
    with contextlib.ExitStack() as stack:
        tf.compat.v1.disable_control_flow_v2()
        stack.callback(tf.compat.v1.enable_control_flow_v2)
        return evaluate("session", build, config)


def _one() -> Any:
    """A number that TensorFlow does not know while it builds."""
    import tensorflow as tf

    return tf.compat.v1.placeholder_with_default(1.0, [])


def _check_names(form: str, more: bool) -> None:
    import horovod.tensorflow as hvd

    hvd.init()
    run, elements = FORMS[form]
    want = [_expected(element, hvd.rank(), hvd.size()) for element in elements]
    for mode in ALL_MODES:
        for named in (True, False) if mode in ("function", "session") else (True,):

            def build(named=named) -> Any:
                one = _one()
                before = _more_on_rank_0(one) if more else []
                return run(lambda element: _of_each_kind(element, named), one), before

            results, _ = _evaluate(mode, build, form in CALLS)
            np.testing.assert_array_equal(results, want, f"{form}, {mode}, named: {named}")


@pytest.mark.parametrize("form", FORMS)
def test_ranks_match_all_kinds_inside(form):
    run_ranks(_check_names, 2, form, True, timeout_s=120)


def test_three_ranks_match_all_kinds_in_a_loop():
    run_ranks(_check_names, 3, "while_loop", True, timeout_s=120)


def _check_gradients(form: str) -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    run, elements = FORMS[form]
    want = _slope(hvd.rank(), hvd.size()) * sum(elements)
    for mode in MODES:

        def build(mode=mode) -> Any:
            weight = _one()

            def loss() -> Any:
                one = tf.stop_gradient(weight)
                return tf.reduce_sum(run(lambda element: _of_each_kind(weight * element), one))

            if "session" in mode:
                return tf.gradients(loss(), weight)[0]
            with tf.GradientTape() as tape:
                tape.watch(weight)
                value = loss()
            return tape.gradient(value, weight)

        assert _evaluate(mode, build, form in CALLS) == want, f"{form}, {mode}"


@pytest.mark.parametrize("form", FORMS)
def test_gradients_go_through(form):
    run_ranks(_check_gradients, 2, form, timeout_s=120)


def _shapes_in_each_ranks_order() -> None:
    """A function that every rank traces anew for each shape, and meets the shapes in its order."""
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    traced: list[int] = []

    @tf.function(autograph=False)
    def total(x):
        return tf.reduce_sum(hvd.allgather(x, name="rows"))

    @tf.function(autograph=False)
    def step(x):
        traced.append(x.shape[0])
        with tf.name_scope("first"):
            first = total(x)
        with tf.name_scope("second"):
            second = total(2 * x)
        return first, second, tf.map_fn(lambda e: total(e * x), tf.range(4.0), name="mapped")

    if rank == 0:
        for rows in (9, 8):
            step.get_concrete_function(tf.ones([rows]))
    for number in range(6):
        rows = [1 + (r + number) % 3 for r in range(size)]
        first, second, mapped = step(tf.ones([rows[rank]]))
        assert first.numpy() == sum(rows) and second.numpy() == 2 * sum(rows)
        assert mapped.numpy().tolist() == [e * sum(rows) for e in range(4)]
    assert traced == ([9, 8] if rank == 0 else []) + [1 + (rank + n) % 3 for n in range(3)]


@pytest.mark.smoke
@pytest.mark.parametrize("size", [2, 3])
def test_each_rank_may_trace_again_when_it_must(size):
    run_ranks(_shapes_in_each_ranks_order, size)


def _each_its_branch(mode: str) -> str:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()

    def build() -> Any:
        one = _one()
        return tf.cond(
            one > hvd.rank(),
            lambda: hvd.allreduce(one, name="on the left"),
            lambda: hvd.allreduce(one, name="on the right"),
            name="choice",
        )

    with pytest.raises(tf.errors.FailedPreconditionError) as error:
        _evaluate(mode, build)
    assert hvd.allreduce(1.0, op=hvd.Sum, name="after").numpy() == hvd.size()
    return error.value.message


@pytest.mark.parametrize("mode", ["function", "session", V1_CONTROL_FLOW])
def test_ranks_in_different_branches_are_told_both_names(mode):
    env = {"HOROVOD_MISMATCH_TIME_SECONDS": "1"}
    for text in ranks.run_ranks(_each_its_branch, 2, mode, env=env):
        for rank, name in enumerate(("on_the_left", "on_the_right")):
            assert f"rank {rank} waits in" in text and name in text
