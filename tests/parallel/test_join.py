"""join: ranks with less data than others."""

from __future__ import annotations

import pytest

from tests.harness.pool import run_ranks


def _uneven_epochs() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    rank, size = hvd.rank(), hvd.size()

    @tf.function
    def step(x):
        return hvd.allreduce(x, op=hvd.Sum, name="in function")

    for epoch in range(2):
        steps = rank + 1 if epoch == 0 else size - rank
        for number in range(steps):
            present = size - number
            assert hvd.allreduce(1.0, op=hvd.Sum, name="x").numpy() == present
            assert step(tf.constant(2.0)).numpy() == 2 * present
            assert hvd.allreduce(1.0, name="average").numpy() == pytest.approx(present / size)
            rows = hvd.allgather([rank], name="rows").numpy().tolist()
            assert rows == [r for r in range(size) if (r + 1 if epoch == 0 else size - r) > number]
            group = hvd.grouped_allreduce([1.0, [2.0]], op=hvd.Min, name="group")
            assert [t.numpy().tolist() for t in group] == [1.0, [2.0]]
        last = size - 1 if epoch == 0 else 0
        if epoch == 0:
            assert int(hvd.join()) == last
        else:
            with tf.Graph().as_default(), tf.compat.v1.Session() as session:
                assert session.run(hvd.join()) == last
    assert hvd.allreduce(1.0, op=hvd.Sum, name="x").numpy() == size


@pytest.mark.smoke
@pytest.mark.parametrize("size", [1, 3])
def test_ranks_join_twice(size):
    run_ranks(_uneven_epochs, size, timeout_s=90)


def _what_needs_a_joined_rank() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    some = hvd.ProcessSet([1, 2])
    hvd.init(process_sets=[some])
    if hvd.rank() == 2:
        assert int(hvd.join()) == 0
    else:
        with pytest.raises(tf.errors.FailedPreconditionError, match=r"rank 2 .*has joined.*root"):
            hvd.broadcast(1.0, root_rank=2, name="b")
        assert hvd.broadcast(5.0 if hvd.rank() else 1.0, root_rank=1, name="b1").numpy() == 5.0
        if hvd.rank() == 1:
            with pytest.raises(tf.errors.FailedPreconditionError, match=r"rank 2 .*has joined"):
                hvd.allreduce(1.0, name="s", process_set=some)
            assert int(hvd.join()) == 0
        else:
            # Until both of the others have joined.
            while hvd.allgather([0], name="who").numpy().tolist() != [0]:
                pass
            hvd.barrier()
            assert hvd.alltoall([1, 2, 3], name="a").numpy().tolist() == [1]
            assert int(hvd.join()) == 0
    if some.included():
        assert hvd.allreduce(1.0, op=hvd.Sum, name="s", process_set=some).numpy() == 2.0
    hvd.barrier()


def test_what_needs_a_joined_rank_fails_by_name():
    run_ranks(_what_needs_a_joined_rank, 3, timeout_s=60)
