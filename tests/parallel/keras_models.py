"""What the tests of Keras share: a model, its data, and the optimizers of a Keras version."""

from __future__ import annotations

import importlib.metadata
from typing import Any, Callable

import numpy as np

EXAMPLES, FEATURES, WORDS, WIDTH = 24, 4, 12, 3


def keras_2_environment() -> dict[str, str]:
    """Returns the environment variables under which `tf.keras` is Keras 2.

    None where it is by itself; else the one that makes it tf_keras.
    """
    if importlib.metadata.version("keras").startswith("2."):
        return {}
    return {"TF_USE_LEGACY_KERAS": "1"}


def is_keras_3() -> bool:
    """Returns whether `tf.keras` is Keras 3."""
    import tensorflow as tf

    return hasattr(tf.keras, "version") and tf.keras.version().startswith("3.")


def optimizers() -> dict[str, Callable[[], Any]]:
    """Returns what makes each kind of optimizer, by name; new and legacy ones in Keras 2."""
    import tensorflow as tf

    def of(module: Any, prefix: str) -> dict[str, Callable[[], Any]]:
        made = {
            "SGD": lambda: module.SGD(0.1),
            "momentum": lambda: module.SGD(0.1, momentum=0.9),
            "Adam": lambda: module.Adam(0.05),
            "Adagrad": lambda: module.Adagrad(0.1),
            "RMSprop": lambda: module.RMSprop(0.02),
        }
        if hasattr(module, "AdamW"):
            made["AdamW"] = lambda: module.AdamW(0.05, weight_decay=0.1)
        return {prefix + name: make for name, make in made.items()}

    new = of(tf.keras.optimizers, "")
    return new if is_keras_3() else {**new, **of(tf.keras.optimizers.legacy, "legacy ")}


def sgd_kinds() -> list[Any]:
    """Returns the classes of SGD: the new and, where there is one, the legacy one."""
    import tensorflow as tf

    new = [tf.keras.optimizers.SGD]
    return new if is_keras_3() else [*new, tf.keras.optimizers.legacy.SGD]


def data() -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Returns the inputs and labels of EXAMPLES examples."""
    random = np.random.default_rng(5)
    x = random.normal(size=(EXAMPLES, FEATURES)).astype(np.float32)
    # Every batch of 12 has each word once: legacy optimizers leave rows without a gradient alone,
    # and Keras 3 squares duplicate rows one by one; both tell slices from dense gradients.
    w = random.permuted(np.tile(np.arange(WORDS, dtype=np.int32), (2, 1)), axis=1).reshape(-1, 1)
    y = random.normal(size=(EXAMPLES, WIDTH)).astype(np.float32)
    return {"features": x, "words": w}, y


def part_of(arrays: Any, rank: int, size: int, batch: int) -> Any:
    """Returns a rank's part of each batch, so that fit(batch_size=batch / size) sees it."""

    def part(array: np.ndarray) -> np.ndarray:
        batches = array.reshape(-1, size, batch // size, *array.shape[1:])
        return batches[:, rank].reshape(-1, *array.shape[1:])

    if isinstance(arrays, dict):
        return {name: part(array) for name, array in arrays.items()}
    return part(arrays)


def model() -> Any:
    """Makes a model of a matrix, a bias and an embedding; its weights are always the same."""
    import tensorflow as tf

    layers = tf.keras.layers
    features = tf.keras.Input((FEATURES,), name="features")
    words = tf.keras.Input((1,), dtype="int32", name="words")
    embedded = layers.Flatten()(layers.Embedding(WORDS, WIDTH)(words))
    output = layers.Add()([layers.Dense(WIDTH)(features), embedded])
    made = tf.keras.Model({"features": features, "words": words}, output)
    random = np.random.default_rng(3)
    made.set_weights([random.normal(size=w.shape) for w in made.get_weights()])
    return made


def same_on_all_ranks(weights: list[Any]) -> None:
    """Fails unless all ranks have the same bits."""
    import horovod.tensorflow as hvd

    for place, weight in enumerate(weights):
        weight = np.asarray(weight)
        gathered = hvd.allgather(weight[None], name=f"weight_{place}").numpy()
        np.testing.assert_array_equal(gathered, np.stack([weight] * hvd.size()))
