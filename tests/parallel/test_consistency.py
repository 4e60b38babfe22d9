"""check_consistency, its hook and its callback."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from tests.harness.pool import run_ranks


def _error(variables: Any, **options: Any) -> str:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    with pytest.raises(tf.errors.FailedPreconditionError) as caught:
        hvd.check_consistency(variables, **options)
    return str(caught.value.message)


def _eager() -> list[str]:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    with pytest.raises(ValueError, match=r"init\(\) first"):
        hvd.check_consistency([tf.Variable(1.0)])
    some = hvd.ProcessSet([0, 2])
    hvd.init(process_sets=[some])
    rank = hvd.rank()

    def variables(last):
        values = {
            "a": [1.0, float("nan"), -0.0],
            "half": tf.constant([1.5] * 9, tf.bfloat16),
            "none": tf.zeros([0, 2]),
            "words": [b"a", b"bc"],
            "flags": [[True, False]],
            "last": last,
        }
        return [tf.Variable(value, name=name) for name, value in values.items()]

    hvd.check_consistency(variables(1.0))
    hvd.check_consistency(v for v in variables([0] * 100))
    hvd.check_consistency([tf.constant(2), np.ones(3)])  # values have no names
    texts = [
        _error(variables(0.5 if rank == 1 else 1.0)),  # short: shown
        _error(variables([float(rank == 2)] * 5)),  # long: digests
        _error(variables([-0.0 if rank else 0.0])),  # every bit counts
        _error(variables(np.zeros(2, np.int32 if rank == 0 else np.int64))),
        _error(variables([b"ab", b"c"] if rank == 0 else [b"a", b"bc"])),
        _error(variables(1.0)[: 6 - rank]),  # fewer
        _error([tf.Variable(1.0, name=f"dense_{min(rank, 1)}"), tf.Variable(rank)]),
    ]
    if some.included():
        hvd.check_consistency([tf.Variable(1)], process_set=some)
        texts.append(_error([tf.Variable(rank, name="of_set")], process_set=some))
    # One that cannot read its variables is announced.
    if rank == 1:
        with pytest.raises(ValueError, match="no variables"):
            hvd.check_consistency([])
        texts.append("")
    else:
        texts.append(_error(variables(1.0)))
    hvd.check_consistency(variables(1.0))  # nothing is left over
    return texts


@pytest.mark.smoke
def test_the_first_variable_that_differs_is_named_with_its_ranks():
    results = run_ranks(_eager, 3)
    short, long, bits, dtype, words, fewer, names = results[0][:7]
    assert all(result[:7] == results[0][:7] for result in results)
    assert "'last:0'" in short and "float32 [] 1.0 on ranks 0, 2; float32 [] 0.5 on rank 1" in short
    assert "1 of 6 variables differ" in short and "hvd.broadcast_variables" in short
    assert "'last:0'" in long and "on ranks 0-1; float32 [5] sha256" in long
    assert "[0.0] on rank 0; float32 [1] [-0.0] on ranks 1-2" in bits
    assert "int32 [2] [0, 0] on rank 0; int64 [2] [0, 0] on ranks 1-2" in dtype
    assert "[b'ab', b'c'] on rank 0" in words
    assert "'flags:0'" in fewer and "6 on rank 0, 5 on rank 1, 4 on rank 2" in fewer
    assert "variable 0 is 'dense_0:0' on rank 0; 'dense_1:0' on ranks 1-2" in names
    assert "0 on rank 0; int32 [] 2 on rank 2" in results[0][7]
    for announced in (results[0][-1], results[2][-1]):
        assert "rank 1 could not read its variables: ValueError: " in announced
        assert "no variables; build the model first" in announced


def _no_variables() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    v = tf.Variable([1.0, 2.0])
    for wrong, match in (
        ([None], r"variables\[0\] is None; leave it out"),
        ([v, tf.keras.layers.Dense(1)], r"variables\[1\] is .*Dense.*, which is no variable"),
        ([object()], "no variable"),
        ([tf.IndexedSlices(tf.ones([1]), tf.constant([0]))], "no variable"),
        (["v:0"], "no variable"),
        ([[v]], "no variable"),
        (v, "pass a list of variables"),
        (3, "variables=3; pass a list"),
        (None, "variables=None; pass a list"),
    ):
        with pytest.raises(ValueError, match=match):
            hvd.check_consistency(wrong)
        if wrong is not None:
            for made in (hvd.CheckConsistencyHook, hvd.CheckConsistencyCallback):
                with pytest.raises(ValueError, match=match):
                    made(1, variables=wrong)
    for wrong in (None, 0, 1.5, "2"):
        with pytest.raises(ValueError, match="every_n_steps="):
            hvd.CheckConsistencyHook(wrong)
    with pytest.raises(ValueError, match="session=3"):
        hvd.check_consistency([v], session=3)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        with pytest.raises(ValueError, match="no variable"):
            hvd.check_consistency([tf.no_op()], session=session)
        hvd.check_consistency([tf.constant(1.0), np.ones(2), 3.0], session=session)


def test_what_is_no_variable_is_named():
    run_ranks(_no_variables, 2)


def _graph() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    rank = hvd.rank()
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        made = [
            v1.get_variable("ref", initializer=[1.0, 2.0], use_resource=False),
            v1.get_variable("resource", initializer=rank, use_resource=True),
        ]
        with pytest.raises(ValueError, match="pass session="):
            hvd.check_consistency(made)
        with v1.Session() as session:
            # Uninitialized on rank 1 alone.
            if rank == 0:
                session.run(v1.global_variables_initializer())
                with pytest.raises(tf.errors.FailedPreconditionError, match=r"rank 1 could not"):
                    hvd.check_consistency(made)
            else:
                with pytest.raises(tf.errors.FailedPreconditionError, match="uninitialized"):
                    hvd.check_consistency(made)
                session.run(v1.global_variables_initializer())
            v1.get_default_graph().finalize()
            hvd.check_consistency(made[:1])
            text = _error(made)
            assert "'resource:0'" in text and "0 on rank 0; int32 [] 1 on rank 1" in text
        with v1.Session() as session:
            session.run(made[0].initializer)
            hvd.check_consistency(made[:1], session=session)

    # Called while a function is traced, when variables have no values.
    variable = tf.Variable(1.0)
    with pytest.raises(ValueError, match=r"tf\.function"):
        tf.function(lambda: hvd.check_consistency([variable]), autograph=False)()


def test_in_a_session():
    run_ranks(_graph, 2)


def _hook() -> int:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    v1 = tf.compat.v1
    with pytest.raises(ValueError, match="CheckConsistencyHook: every_n_steps=0"):
        hvd.CheckConsistencyHook(0)
    with pytest.raises(TypeError, match="positional"):
        hvd.CheckConsistencyHook(1, [])
    steps = 0
    with tf.Graph().as_default():
        weight = v1.get_variable("w", initializer=0.0)
        own = v1.get_variable("own", initializer=float(hvd.rank()), trainable=False)
        # The ranks part in step 4, and the check after step 6 is the first to see it.
        step = v1.train.get_or_create_global_step()
        apart = tf.cast((step >= 3) & tf.equal(hvd.rank(), 1), tf.float32)
        train = tf.group(weight.assign_add(1.0 + apart), own.assign_add(1.0))
        with tf.control_dependencies([train]):
            train = step.assign_add(1)
        hooks = [hvd.CheckConsistencyHook(every_n_steps=3)]
        with (
            pytest.raises(tf.errors.FailedPreconditionError, match=r"w:0.* 6\.0 on rank 0"),
            v1.train.MonitoredTrainingSession(hooks=hooks) as session,
        ):
            for _ in range(10):
                session.run(train)
                steps += 1
    return steps


@pytest.mark.smoke
def test_the_hook_checks_every_n_steps():
    assert run_ranks(_hook, 2) == [5, 5]  # the sixth did not return


def _callback() -> int:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    with pytest.raises(ValueError, match="CheckConsistencyCallback: every_n_steps=-1"):
        hvd.CheckConsistencyCallback(every_n_steps=-1)
    with pytest.raises(TypeError, match="positional"):
        hvd.CheckConsistencyCallback(1, [])
    tf.keras.utils.set_random_seed(2)
    model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x = np.ones((8, 2), np.float32)
    alike = hvd.CheckConsistencyCallback(2)
    model.fit(x, x[:, :1], batch_size=2, epochs=1, verbose=0, callbacks=[alike])

    seen = []

    class Counts(tf.keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            seen.append(batch)

    apart = (x + hvd.rank(), x[:, :1])  # gradients that nobody reduces
    callbacks = [Counts(), hvd.CheckConsistencyCallback(3)]
    with pytest.raises(tf.errors.FailedPreconditionError, match="kernel"):
        model.fit(*apart, batch_size=2, epochs=2, verbose=0, callbacks=callbacks)
    named = [hvd.CheckConsistencyCallback(1, variables=[tf.Variable(1.0)])]
    model.fit(*apart, batch_size=2, verbose=0, callbacks=named)
    return len(seen)


@pytest.mark.smoke
def test_the_callback_checks_every_n_steps():
    assert run_ranks(_callback, 2) == [3, 3]


def test_keras_is_loaded_at_the_first_use_only():
    code = (
        "import sys, tensorflow\n"
        "keras = lambda: {m for m in sys.modules if m.split('.')[0] in ('keras', 'tf_keras')}\n"
        "before = keras()  # TensorFlow 2.15 loads some of it\n"
        "import horovod.tensorflow as hvd\n"
        "assert keras() == before\n"
        "assert hvd.CheckConsistencyCallback and hvd.SyncBatchNormalization\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
