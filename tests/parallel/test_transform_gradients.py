"""transform_gradients: this rank's gradients are changed before the reduction."""

from __future__ import annotations

import numpy as np
import pytest

from tests.harness.pool import run_ranks
from tests.parallel import keras_models as models
from tests.parallel.modes import MODES

CAP = 2.0


def _capped(pairs):
    """Cuts each rank's gradients, so that the mean of the cut is not the cut of the mean."""
    import tensorflow as tf

    return [(None if g is None else tf.minimum(tf.convert_to_tensor(g), CAP), v) for g, v in pairs]


def _v1(mode: str, mine: float, options: dict) -> list[float]:
    """Two passes of minimize on y = mine * w; returns w after each."""
    import tensorflow as tf

    import horovod.tensorflow as hvd

    v1 = tf.compat.v1
    sgd = v1.train.GradientDescentOptimizer(1.0)
    optimizer = hvd.DistributedOptimizer(sgd, transform_gradients=_capped, **options)
    if mode == "session":
        with tf.Graph().as_default(), v1.Session() as session:
            w, idle = (
                v1.get_variable("w", initializer=0.0),
                v1.get_variable("idle", initializer=0.0),
            )
            train = optimizer.minimize(w * mine, var_list=[w, idle])
            session.run(v1.global_variables_initializer())
            history = []
            for _ in range(2):
                session.run(train)
                history.append(float(session.run(w)))
            return history
    w, idle = tf.Variable(0.0), tf.Variable(0.0)

    def step():
        optimizer.minimize(lambda: w * mine, var_list=[w, idle])

    run = tf.function(step) if mode == "function" else step
    history = []
    for _ in range(2):
        run()
        history.append(float(w.numpy()))
    return history


def _with_v1() -> None:
    import horovod.tensorflow as hvd

    hvd.init()
    mine = [1.0, 5.0][hvd.rank()]
    for mode in MODES:
        # Cut to 1 and 2; their mean would be 3, cut 2.
        np.testing.assert_allclose(_v1(mode, mine, {}), [-1.5, -3.0], err_msg=mode)
        np.testing.assert_allclose(_v1(mode, mine, {"op": hvd.Sum}), [-3.0, -6.0], err_msg=mode)
        # The sums of two passes, 2 and 10, are what is cut, and not the passes.
        two = {"backward_passes_per_step": 2}
        np.testing.assert_allclose(_v1(mode, mine, two), [0.0, -2.0], err_msg=mode)
        # Adasum of the scalars 1 and 2: 1 (1 - 2/2) + 2 (1 - 2/8).  It acts on the update.
        adasum = {"op": hvd.Adasum}
        np.testing.assert_allclose(_v1(mode, mine, adasum), [-1.5, -3.0], err_msg=mode)


def test_an_optimizer_of_compat_v1():
    run_ranks(_with_v1, 2, timeout_s=120)


def _with_keras_through_tensorflow() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    mine = [1.0, 5.0][hvd.rank()]
    for kind in models.sgd_kinds():
        for k, expected in ((1, [-1.5, -3.0]), (2, [0.0, -2.0])):
            for function in (False, True):
                optimizer = hvd.DistributedOptimizer(
                    kind(1.0), transform_gradients=_capped, backward_passes_per_step=k
                )
                w, history = tf.Variable(0.0), []

                def step(optimizer=optimizer, w=w):
                    optimizer.apply_gradients([(tf.constant(mine), w)])

                run = tf.function(step) if function else step
                for _ in range(2):
                    run()
                    history.append(w.numpy())
                np.testing.assert_allclose(history, expected, err_msg=f"{kind} {k} {function}")


def test_a_keras_optimizer_wrapped_by_horovod_tensorflow():
    run_ranks(_with_keras_through_tensorflow, 2, timeout_s=120)


def _with_tapes() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    mine = [1.0, 5.0][hvd.rank()]
    w, local = tf.Variable([0.0]), tf.Variable([0.0])

    def gradients(partial):
        layer = tf.keras.layers.Layer()
        with tf.GradientTape() as tape:
            y = mine * (w + local)
        if partial:
            made = hvd.PartialDistributedGradientTape(
                tape, local_layers=[layer], transform_gradients=_capped
            )
        else:
            made = hvd.DistributedGradientTape(tape, transform_gradients=_capped)
        made.register_local_source(local)
        return made.gradient(y, {"w": w, "local": local})

    for partial in (False, True):
        for run in (gradients, tf.function(gradients)):
            got = run(partial)
            np.testing.assert_allclose(got["w"], [1.5])
            np.testing.assert_allclose(got["local"], [min(mine, CAP) / 2])


def test_tapes():
    run_ranks(_with_tapes, 2)


def _capped_if_long(pairs):
    """As `_capped`, by a branch that AutoGraph has to convert."""
    import tensorflow as tf

    capped = []
    for g, v in pairs:
        if g is not None and tf.norm(g) > CAP:
            g = tf.fill(g.shape, CAP)
        capped.append((g, v))
    return capped


def _with_autograph() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    mine = [1.0, 5.0][hvd.rank()]

    def gradient(w):
        with tf.GradientTape() as tape:
            y = w * mine
        made = hvd.DistributedGradientTape(tape, transform_gradients=_capped_if_long)
        return made.gradient(y, w)

    w = tf.Variable(0.0)
    assert tf.function(gradient)(w).numpy() == gradient(w).numpy() == 1.5
    with pytest.raises(tf.errors.OperatorNotAllowedInGraphError):
        tf.function(gradient, autograph=False)(w)

    for make in (tf.compat.v1.train.GradientDescentOptimizer, *models.sgd_kinds()):
        for k, expected in ((1, [-1.5, -3.0]), (2, [0.0, -2.0])):
            optimizer = hvd.DistributedOptimizer(
                make(1.0), transform_gradients=_capped_if_long, backward_passes_per_step=k
            )
            w, history = tf.Variable(0.0), []
            gradients = [(tf.constant(mine), w)]

            @tf.function
            def step(optimizer=optimizer, w=w, gradients=gradients):
                if hasattr(optimizer, "compute_gradients"):
                    optimizer.minimize(lambda: w * mine, var_list=[w])
                else:
                    optimizer.apply_gradients(gradients)

            for _ in range(2):
                step()
                history.append(w.numpy())
            np.testing.assert_allclose(history, expected, err_msg=f"{make} {k}")

    for kind in () if models.is_keras_3() else models.sgd_kinds():  # whose fit has AutoGraph off
        for k, expected in ((1, -3.0), (2, -2.0)):
            layer = tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
            model = tf.keras.Sequential([layer])
            optimizer = hvd.DistributedOptimizer(
                kind(1.0), transform_gradients=_capped_if_long, backward_passes_per_step=k
            )
            model.compile(optimizer, loss=lambda _, y: y)
            x = np.full((2, 1), mine, np.float32)
            model.fit(x, x, batch_size=1, epochs=1, verbose=0)
            np.testing.assert_allclose(model.get_weights()[0], [[expected]], err_msg=f"{kind} {k}")


def test_autograph_converts_it_as_the_code_around():
    run_ranks(_with_autograph, 2, timeout_s=120)


def _refusals() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    v1 = tf.compat.v1
    a, b = tf.Variable(1.0, name="a"), tf.Variable(1.0, name="b")

    def minimize(transform, passes=1):
        optimizer = hvd.DistributedOptimizer(
            v1.train.GradientDescentOptimizer(1.0),
            transform_gradients=transform,
            backward_passes_per_step=passes,
        )
        for _ in range(passes):
            optimizer.minimize(lambda: a * b, var_list=[a, b])

    for transform, passes, text in (
        (3, 1, "transform_gradients=3; it must be a function"),
        (lambda pairs: None, 1, "returned None; return a list of"),
        (lambda pairs: [gradient for gradient, _ in pairs], 1, "return a list of"),
        (lambda pairs: pairs[:1], 1, "given 2 pairs .* returned 1"),
        (lambda pairs: pairs[::-1], 1, "given 'a:0' in pair 0 and returned 'b:0'"),
        (lambda pairs: [(None, v) for _, v in pairs], 2, "was dense of float32 and became None"),
        (
            lambda pairs: [(tf.cast(g, tf.float16), v) for g, v in pairs],
            1,
            "gradient of dtype float32 for 'a:0' and returned one of float16; keep the dtype",
        ),
        (
            lambda pairs: [pairs[0], (tf.fill([3], 1.0), pairs[1][1])],
            1,
            r"gradient of shape \(\) for 'b:0' and returned one of \(3,\); keep the shape",
        ),
    ):
        with pytest.raises(ValueError, match=text):
            minimize(transform, passes)
    for function in (minimize, tf.function(minimize)):  # eager and symbolic tensors
        with pytest.raises(ValueError, match=r"returned .*; return a list of"):
            function(lambda pairs: tf.stack([gradient for gradient, _ in pairs]))
    keras = hvd.DistributedOptimizer(
        tf.keras.optimizers.SGD(1.0),
        transform_gradients=lambda pairs: [(None, v) for _, v in pairs],
        backward_passes_per_step=2,
    )
    keras.apply_gradients([(tf.constant(1.0), a)])
    with pytest.raises(ValueError, match="was dense of float32 and became None"):
        keras.apply_gradients([(tf.constant(1.0), a)])
    row = tf.Variable([1.0, 2.0])
    for kind in models.sgd_kinds():
        keras = hvd.DistributedOptimizer(
            kind(1.0), transform_gradients=lambda pairs: [(3.0, v) for _, v in pairs]
        )
        for gradient in (tf.ones([2]), None):  # of which the variable tells the shape
            with pytest.raises(ValueError, match=r"gradient of shape \(2,\) for .* one of \(\)"):
                keras.apply_gradients([(gradient, row), (tf.ones([2]), row)])

    @tf.function(input_signature=[tf.TensorSpec(None), tf.TensorSpec([None])])
    def unknown(first, second):
        with tf.GradientTape() as tape:
            tape.watch([first, second])
            y = tf.reduce_sum(first * 2.0) + tf.reduce_sum(second)
        made = hvd.DistributedGradientTape(
            tape, transform_gradients=lambda pairs: [(tf.ones([2]), s) for _, s in pairs]
        )
        return made.gradient(y, [first, second])

    for gradient in unknown(row, row):
        np.testing.assert_array_equal(gradient, [1.0, 1.0])
    optimizer = hvd.DistributedOptimizer(
        v1.train.GradientDescentOptimizer(1.0), transform_gradients=_capped
    )
    with pytest.raises(ValueError, match="needs to know the gradients' variables"):
        optimizer._allreduce_grads([tf.constant(1.0)])


def test_what_it_may_not_return():
    run_ranks(_refusals, 2)


def _under_a_loss_scale() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    v1 = tf.compat.v1
    scale = 8.0
    for inside in (False, True):
        seen = []

        def note(pairs, seen=seen):
            seen.extend(gradient for gradient, _ in pairs)
            return pairs

        def scaled(optimizer):
            return v1.mixed_precision.MixedPrecisionLossScaleOptimizer(optimizer, scale)

        def ours(optimizer, note=note):
            return hvd.DistributedOptimizer(optimizer, transform_gradients=note)

        with tf.Graph().as_default(), v1.Session() as session:
            w = v1.get_variable("w", initializer=0.0)
            sgd = v1.train.GradientDescentOptimizer(1.0)
            optimizer = ours(scaled(sgd)) if inside else scaled(ours(sgd))
            train = optimizer.minimize(w * 3.0, var_list=[w])
            session.run(v1.global_variables_initializer())
            assert session.run(seen) == [3.0 if inside else 3.0 * scale]
            session.run(train)
            assert session.run(w) == -3.0


def test_a_loss_scale_around_shows_scaled_gradients():
    run_ranks(_under_a_loss_scale, 1)
