"""What tutorials write: allreduce of (gradient, variable) pairs, BroadcastGlobalVariablesOp."""

from __future__ import annotations

import pytest

from tests.harness import ranks
from tests.harness.pool import run_ranks


def _session() -> tuple[list[float], list[float], list[float]]:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    v1 = tf.compat.v1
    rank = hvd.rank()
    with tf.Graph().as_default(), v1.Session() as session:
        if rank == 1:  # so TensorFlow numbers other tensors differently than on rank 0
            tf.gradients(tf.square(tf.constant(1.0)), [tf.constant(1.0)])
        w = v1.get_variable("w", initializer=[rank + 1.0, 5.0])
        table = v1.get_variable("table", initializer=[[0.0], [float(rank)], [0.0]])
        idle = v1.get_variable("idle", initializer=1.0)
        loss = (rank + 1.0) * (tf.reduce_sum(w) + tf.reduce_sum(tf.gather(table, [rank])))
        optimizer = v1.train.GradientDescentOptimizer(1.0)
        pairs = optimizer.compute_gradients(loss, var_list=[w, table, idle])
        averaged = hvd.allreduce(pairs)
        assert isinstance(averaged, list)
        assert [variable for _, variable in averaged] == [w, table, idle]
        assert isinstance(averaged[1][0], tf.IndexedSlices)
        assert averaged[2][0] is None
        train = optimizer.apply_gradients(averaged)
        ((total, _),) = hvd.allreduce(tuple(pairs[:1]), op=hvd.Sum, name="again")
        session.run(v1.global_variables_initializer())
        session.run(hvd.BroadcastGlobalVariablesOp(0))
        session.run(train)
        w, table, total = session.run([w, table, total])
        return w.tolist(), table[:, 0].tolist(), total.tolist()


@pytest.mark.smoke
def test_pairs_by_hand_in_a_session():
    for w, table, total in run_ranks(_session, 2):
        assert w == [1.0 - 1.5, 5.0 - 1.5]
        assert table == [-0.5, -1.0, 0.0]  # each rank's row, over 2 ranks
        assert total == [3.0, 3.0]


def _eager_and_function() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    # Names of eager variables need not be the same, nor different.
    variables = [tf.Variable(0.0, name=f"of_rank_{hvd.rank()}") for _ in range(2)]
    pairs = [(tf.constant(hvd.rank() + 1.0), variables[0]), (None, variables[1])]
    averaged = hvd.allreduce(pairs)
    assert averaged[0][0].numpy() == 1.5 and averaged[0][1] is variables[0]
    assert averaged[1][0] is None and averaged[1][1] is variables[1]
    for same in (zip(*zip(*pairs)), [list(pair) for pair in pairs]):
        (first, of_first), (second, of_second) = hvd.allreduce(same)
        assert first.numpy() == 1.5 and of_first is variables[0]
        assert second is None and of_second is variables[1]
    value = tf.function(lambda: hvd.allreduce(pairs)[0][0], autograph=False)()
    assert value.numpy() == 1.5
    # Lists of numbers, or of variables, are tensors as ever.
    assert hvd.allreduce([variables]).numpy().tolist() == [[0.0, 0.0]]
    assert hvd.allreduce([1.0, 2.0]).numpy().tolist() == [1.0, 2.0]
    assert hvd.allreduce([(1.0, 2.0)]).numpy().tolist() == [[1.0, 2.0]]
    with pytest.raises(RuntimeError, match="broadcast_variables"):
        hvd.BroadcastGlobalVariablesOp(0)


def test_pairs_in_eager_code_and_functions():
    run_ranks(_eager_and_function, 2)


def _none_on_rank_1() -> str:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    one = tf.constant(1.0)
    variables = [tf.Variable(1.0) for _ in range(12)]
    # The same ones without gradient: alike, however many.
    gradients = [one, *[None] * 11]
    for _ in range(2):
        assert hvd.allreduce(list(zip(gradients, variables)))[0][0].numpy() == 1.0
    gradients = [one, one if hvd.rank() == 0 else None]
    with pytest.raises(tf.errors.FailedPreconditionError) as caught:
        for _ in range(2):
            hvd.allreduce(list(zip(gradients, variables)))
    return str(caught.value)


def test_a_gradient_that_is_none_on_one_rank_is_named():
    env = {"HOROVOD_MISMATCH_TIME_SECONDS": "1"}
    for text in ranks.run_ranks(_none_on_rank_1, 2, env=env):
        assert "rank 0 waits in allreduce 'HorovodAllreduce_grad_0', rank 1 waits in " in text
        assert "'HorovodAllreduce_grad_0_None_at_1'" in text
