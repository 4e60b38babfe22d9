"""The names by which ranks match gradients."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from horovod.tensorflow import reduction


@pytest.mark.parametrize(
    "given, names",
    [
        (["w", "b"], ["w", "b"]),
        (["w", "w", "w"], ["w", "w_1", "w_2"]),
        (["w", "w", "w_1"], ["w", "w_1", "w_1_1"]),
        (["w", "w_1", "w"], ["w", "w_1", "w_2"]),
        (["w_1", "w_1", "w", "w", "w"], ["w_1", "w_1_1", "w", "w_2", "w_3"]),
        (["", "grad_0"], ["grad_0", "grad_0_1"]),
    ],
)
def test_no_two_are_equal(given, names):
    sources = [SimpleNamespace(name=name) for name in given]
    got = reduction._names([1.0] * len(sources), sources, generic=False)
    assert got == [f"HorovodAllreduce_{name}" for name in names]
