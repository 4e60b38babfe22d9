"""Helpers that programs import from here; the code lives elsewhere."""

from __future__ import annotations

from horovod.common.util import split_list
from horovod.tensorflow._compat import executing_eagerly as _executing_eagerly
from horovod.tensorflow.checks import check_extension
from horovod.tensorflow.variable_refs import refs_to_vars, vars_to_refs

__all__ = ["_executing_eagerly", "check_extension", "refs_to_vars", "split_list", "vars_to_refs"]
