"""The three ways to run ops: eagerly, in a `tf.function`, and in a compat.v1 session."""

from __future__ import annotations

from typing import Any, Callable

MODES = ("eager", "function", "session")


def evaluate(mode: str, build: Callable[[], Any], config: Any = None) -> Any:
    """Runs what a function builds.

    Args:
      mode: one of MODES.
      build: makes tensors, in any nested structure; variables only in mode "session".
      config: of the session.

    Returns:
      The tensors' values as NumPy arrays, in the same structure.
    """
    import tensorflow as tf

    if mode == "session":
        with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
            tensors = build()
            session.run(tf.compat.v1.global_variables_initializer())
            return session.run(tensors)
    tensors = build() if mode == "eager" else tf.function(build, autograph=False)()
    return tf.nest.map_structure(lambda tensor: tensor.numpy(), tensors)
