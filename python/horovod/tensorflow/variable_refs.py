"""Lists of variables as something that can be hashed, and back."""

from __future__ import annotations

from typing import Any

__all__ = ["refs_to_vars", "vars_to_refs"]


def vars_to_refs(vars: Any) -> Any:
    """Makes references of variables.

    Example:
      >>> v, w = tf.Variable(1.0), tf.Variable(2.0)
      >>> hvd.vars_to_refs([v, [w]]) == (v.ref(), (w.ref(),))
      True

    Args:
      vars: a variable, or a list of them, nested to any depth.

    Returns:
      A reference, or a tuple of them, nested likewise.
    """
    return tuple(map(vars_to_refs, vars)) if isinstance(vars, (list, tuple)) else vars.ref()


def refs_to_vars(refs: Any) -> Any:
    """Undoes `vars_to_refs`.

    Example:
      >>> v, w = tf.Variable(1.0), tf.Variable(2.0)
      >>> [x.numpy() for x in hvd.refs_to_vars(hvd.vars_to_refs([v, w]))]
      [1.0, 2.0]

    Args:
      refs: a reference, or a tuple of them, nested to any depth.

    Returns:
      A variable, or a list of them, nested likewise.
    """
    return list(map(refs_to_vars, refs)) if isinstance(refs, (list, tuple)) else refs.deref()
