"""Collectives on values, and the modules that programs import from."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from tests.harness.pool import run_ranks


def _values() -> None:
    import tensorflow as tf

    import horovod.keras as hvd

    hvd.init()
    rank = hvd.rank()
    mean = hvd.allreduce([1.0 + rank, 4.0])
    assert isinstance(mean, np.ndarray) and mean.dtype == np.float32
    np.testing.assert_allclose(mean, [1.5, 4.0])
    assert hvd.allreduce(rank + 1.0, name="one") == 1.5
    assert hvd.allreduce(np.float64(rank), op=hvd.Sum).dtype == np.float64
    assert hvd.allreduce(rank + 1, average=False) == 3
    assert hvd.allreduce(tf.Variable(rank + 1.0), op=hvd.Max, prescale_factor=2.0) == 4.0
    np.testing.assert_allclose(hvd.allreduce([0.5], compression=hvd.Compression.fp16), [0.5])
    np.testing.assert_array_equal(hvd.allgather([[rank]] * (rank + 1)), [[0], [1], [1]])
    np.testing.assert_array_equal(hvd.broadcast([rank, 5], root_rank=1), [1, 5])
    scattered = hvd.reducescatter([1.0, 2.0, 3.0], op=hvd.Sum)
    np.testing.assert_allclose(scattered, [[2.0, 4.0], [6.0]][rank])
    with pytest.raises(RuntimeError, match="broadcast_variables"):
        hvd.broadcast_global_variables(0)


@pytest.mark.smoke
def test_values_in_numpy_out():
    run_ranks(_values, 2)


def _modules() -> None:
    for old in ("keras", "keras.callbacks", "keras.elastic"):
        module = importlib.import_module(f"horovod.{old}")
        code = importlib.import_module(f"horovod.tensorflow.{old}")
        assert module.__all__ == code.__all__ == sorted(code.__all__)
        for name in code.__all__:
            assert name in ("callbacks", "elastic") or getattr(module, name) is getattr(code, name)
    elastic = importlib.import_module("horovod.keras.elastic")
    for name in elastic.__all__:
        with pytest.raises(NotImplementedError, match="not built yet"):
            getattr(elastic, name)(None)
    import horovod.keras as hvd

    with pytest.raises(ValueError, match="init"):
        hvd.allreduce(1.0)


@pytest.mark.smoke
def test_modules_that_programs_import_from():
    run_ranks(_modules, 1)
