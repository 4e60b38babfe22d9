"""What the control plane remembers and how tensors travel together, seen by its counters."""

from __future__ import annotations

import numpy as np
import pytest

from horovod.common import basics, core
from tests.core import client
from tests.harness.ranks import run_ranks

STEPS, TENSORS = 5, 10


def _train() -> list[dict[str, int]]:
    """A step is some allreduces, an allgather of changing length and a broadcast."""
    basics.init()
    seen = []
    for step in range(STEPS):
        handles = [client.allreduce(np.full(7, step), f"t{t}") for t in range(TENSORS)]
        rows = np.full((step + basics.rank(), 2), basics.rank())
        gathered = client.allgather(rows, "rows")
        root = client.broadcast(np.array([step * (1 + basics.rank())]), 0, "root")
        assert all((h.wait() == step * basics.size()).all() for h in handles)
        want = [np.full((step + r, 2), r) for r in range(basics.size())]
        np.testing.assert_array_equal(gathered.wait(), np.concatenate(want))
        assert root.wait() == [step]
        seen.append(core.counters())
    return seen


def _growth(counters: list[dict[str, int]], name: str) -> list[int]:
    values = [0] + [c[name] for c in counters]
    return [b - a for a, b in zip(values, values[1:], strict=False)]


@pytest.mark.usefixtures("transport")
@pytest.mark.parametrize("size", [1, 2, 3])
def test_only_bits_travel_after_the_first_step(size: int) -> None:
    first, later = [TENSORS + 2], [0] * (STEPS - 1)
    for counters in run_ranks(_train, size):
        assert _growth(counters, "reports_in_full") == first + later
        assert _growth(counters, "reports_cached") == [0] + [TENSORS + 2] * (STEPS - 1)
        assert _growth(counters, "tensors_in_full") == first + later
        assert _growth(counters, "tensors_cached") == [0] + [TENSORS + 2] * (STEPS - 1)


def test_without_a_cache_everything_travels_in_full() -> None:
    for counters in run_ranks(_train, 2, env={"HOROVOD_CACHE_CAPACITY": "0"}):
        assert _growth(counters, "reports_in_full") == [TENSORS + 2] * STEPS
        assert _growth(counters, "reports_cached") == [0] * STEPS


def test_a_cache_that_is_too_small_is_only_slower() -> None:
    for counters in run_ranks(_train, 3, env={"HOROVOD_CACHE_CAPACITY": "5"}):
        assert counters[-1]["reports_in_full"] > TENSORS + 2


def _changes_shape() -> tuple[list[float], int]:
    basics.init()
    results = []
    for step in range(6):
        results.append(float(client.allreduce(np.ones(1 + step // 2), "x").wait().sum()))
    return results, core.counters()["reports_in_full"]


def test_a_changed_shape_is_negotiated_anew() -> None:
    assert run_ranks(_changes_shape, 2) == [([2.0, 2.0, 4.0, 4.0, 6.0, 6.0], 3)] * 2


def _disagrees_after_it_was_cached() -> tuple[str, float]:
    basics.init()
    for _ in range(2):
        client.allreduce(np.ones(2), "x").wait()
    with pytest.raises(core.CoreError) as error:
        client.allreduce(np.ones(2 + basics.rank()), "x").wait()
    return str(error.value), float(client.allreduce(np.ones(2), "x").wait().sum())


def test_a_bit_against_a_full_request_names_both_values() -> None:
    for text, after in run_ranks(_disagrees_after_it_was_cached, 2):
        assert "rank 1 sent shape [3], rank 0 sent [2]" in text
        assert after == 4.0


def _one_large() -> tuple[bool, int]:
    basics.init()
    before = core.counters()["calls"]
    large = client.allreduce(np.arange(1_000_000, dtype=np.float32), "large")
    right = bool((large.wait() == np.arange(1_000_000) * np.float32(basics.size())).all())
    return right, core.counters()["calls"] - before


@pytest.mark.usefixtures("transport")
@pytest.mark.parametrize(
    ("threshold", "calls"), [("4000000", 1), ("1048576", 4), ("100", 16), ("0", 1)]
)
def test_a_large_tensor_travels_in_parts(threshold: str, calls: int) -> None:
    env = {"HOROVOD_FUSION_THRESHOLD": threshold}
    results = run_ranks(_one_large, 2, env=env)
    assert results == [(True, calls)] * 2
