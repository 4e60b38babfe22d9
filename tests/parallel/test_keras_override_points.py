"""Canaries: what `horovod.tensorflow.keras._override_points` relies on still holds in this Keras.

Each looks at Keras alone.  When one fails, Keras has moved a method: the row of the table and its
class are to follow.
"""

from __future__ import annotations

import inspect
import sys

import numpy as np
import pytest

from tests.harness.pool import run_ranks
from tests.parallel import keras_models as models


def _parameters(function) -> list[str]:
    return list(inspect.signature(function).parameters)


def _recording(base, method: str, calls: list, callers: list | None = None):
    """Returns a subclass that notes the calls of a method, and whose they are."""
    callers = [] if callers is None else callers

    def noted(self, *args, **kwargs):
        calls.append(method)
        callers.append(sys._getframe(1).f_locals.get("self"))
        return getattr(super(made, self), method)(*args, **kwargs)

    made = type("Recording", (base,), {method: noted})
    return made


def _apply(optimizer) -> None:
    import tensorflow as tf

    optimizer.apply_gradients([(tf.constant([1.0]), tf.Variable([1.0]))])


def _keras_2() -> None:
    import tensorflow as tf

    assert not models.is_keras_3()
    keras = tf.keras.optimizers
    scaling = tf.keras.mixed_precision.LossScaleOptimizer
    for base, method in (
        (keras.SGD, "aggregate_gradients"),
        (keras.legacy.SGD, "_aggregate_gradients"),
    ):
        # Row 1 and 2: apply_gradients calls it, and the caller can prevent that.
        calls: list[str] = []
        optimizer = _recording(base, method, calls)(0.1)
        _apply(optimizer)
        assert calls == [method]
        pairs = [(tf.constant([1.0]), tf.Variable([1.0]))]
        new = base is keras.SGD
        optimizer = _recording(base, method, calls)(0.1)
        option = "skip_gradients_aggregation" if new else "experimental_aggregate_gradients"
        optimizer.apply_gradients(pairs, **{option: new})
        assert calls == [method]
        # Loss scaling calls the inner optimizer's, also when the gradient is not finite, and then
        # does not apply.
        del calls[:]
        callers: list = []
        inner = _recording(base, method, calls, callers)
        inner = _recording(inner, "apply_gradients", calls)(0.1)
        optimizer = scaling(inner, initial_scale=4.0)
        assert optimizer.inner_optimizer is optimizer._optimizer is inner
        optimizer.apply_gradients([(tf.constant([np.inf]), tf.Variable([1.0]))])
        assert calls == [method] and callers == [optimizer]
        assert float(optimizer.loss_scale) == 2.0
        assert optimizer.dynamic is True
        # Building, and the state that belongs to the root.
        state = optimizer._loss_scale._weights.values()
        assert sorted(float(variable) for variable in state) == [0.0, 2.0]
        assert callable(base.build if new else base._create_all_weights)
    assert tf.__internal__.tf2.enabled()
    # Slots of the momentum correction; the names under which a class is saved.
    variable = tf.Variable([1.0])
    for optimizer, name in (
        (keras.SGD(0.1, momentum=0.5), "momentums"),
        (keras.RMSprop(0.1, momentum=0.5), "_momentums"),
    ):
        optimizer.build([variable])
        assert len(getattr(optimizer, name)) == 1
    legacy = keras.legacy.SGD(0.1, momentum=0.5)
    _apply(legacy)
    assert [list(slots) for slots in legacy._slots.values()] == [["momentum"]]
    assert any("_api_names" in name for name in vars(keras.Adam))


@pytest.mark.smoke
def test_keras_2_aggregates_where_it_is_overridden():
    run_ranks(_keras_2, 2, env=models.keras_2_environment())


def _keras_3() -> None:
    import tensorflow as tf

    if not models.is_keras_3():
        return
    keras = tf.keras.optimizers
    scaling = keras.LossScaleOptimizer
    original = inspect.unwrap(scaling.apply)
    # Row 3: apply_gradients calls apply.
    calls: list[str] = []
    assert _parameters(keras.SGD.apply) == ["self", "grads", "trainable_variables"]
    _apply(_recording(keras.SGD, "apply", calls)(0.1))
    assert calls == ["apply"]
    # Loss scaling leaves the inner optimizer out when a gradient is not finite: the reason for the
    # replacement of its apply, which must be a method of the class itself.
    del calls[:]
    optimizer = scaling(_recording(keras.SGD, "apply", calls)(0.1), initial_scale=4.0)
    optimizer.apply_gradients([(tf.constant([np.inf]), tf.Variable([1.0]))])
    assert calls == []
    assert float(optimizer.dynamic_scale) == 2.0
    assert "apply" in vars(scaling)
    assert _parameters(original) == ["self", "grads", "trainable_variables"]
    # Accumulation would be inside of apply.
    optimizer = keras.SGD(0.1, gradient_accumulation_steps=2)
    assert optimizer.gradient_accumulation_steps == 2
    # The states of random seeds are among a model's variables, though they are no weights.
    model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dropout(0.5)])
    inner = tf.keras.Sequential([tf.keras.Input((1,)), model])
    states = [g.state for layer in inner._flatten_layers() for g in layer._seed_generators]
    assert len(states) == 1 and states[0] is inner.variables[0] and not inner.weights
    for optimizer, name in (
        (keras.SGD(0.1, momentum=0.5), "momentums"),
        (keras.RMSprop(0.1, momentum=0.5), "_momentums"),
    ):
        optimizer.build([tf.Variable([1.0])])
        assert optimizer.built and len(getattr(optimizer, name)) == 1
        assert len(optimizer._trainable_variables) == 1


@pytest.mark.smoke
def test_keras_3_applies_where_it_is_overridden():
    run_ranks(_keras_3, 1)


def _xla() -> list[bool]:
    import tensorflow as tf

    from horovod.tensorflow import _compat

    seen = [_compat.in_xla()]

    def note(x):
        seen.append(_compat.in_xla())
        return tf.cond(x > 0, lambda: x, lambda: -x)

    tf.function(note)(tf.constant(1.0))
    tf.function(note, jit_compile=True)(tf.constant(1.0))
    return seen


@pytest.mark.smoke
def test_a_function_tells_that_xla_compiles_it():
    seen = run_ranks(_xla, 1)[0]
    assert seen[0] is False and seen[1] is False and seen[-1] is True
