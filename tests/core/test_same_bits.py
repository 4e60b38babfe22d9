"""The same bytes on every rank and in every run, however the tensors travel.

Alone, fused, in a group, in parts, scattered; by shared memory, TCP, or both between hosts.
"""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from horovod.common import basics
from horovod.common.reduce_ops import ReduceOp
from tests.core import client, hosts
from tests.core.conftest import TRANSPORTS
from tests.core.reference import of_rank
from tests.harness.ranks import run_ranks

FLOATS = [dtype for dtype in client.DTYPES if dtype.kind not in "biu"]
SHAPES: list[tuple[int, ...]] = [(), (1,), (7, 3), (0, 2), (1025,), (30_001,), (3, 40_007)]
OPS = [ReduceOp.Sum, ReduceOp.Average, ReduceOp.Product]
FACTORS = {"prescale": 0.3, "postscale": 1.7}

# How the data plane may be set up: what it cuts, what it fuses, and what it runs over.
SETTINGS = [
    {},
    {"HOROVOD_FUSION_THRESHOLD": "0"},
    {"HOROVOD_FUSION_THRESHOLD": "65536", "HOROVOD_STAGING_BYTES": "65536"},
    {"HOROVOD_DISABLE_GROUP_FUSION": "1", "HOROVOD_STAGING_BYTES": "8192"},
]


def _digest(results: list[list[Any]]) -> bytes:
    digest = hashlib.sha256()
    for tensors in results:
        for tensor in tensors:
            digest.update(tensor.tobytes())
    return digest.digest()


def _every_way(per_host: int) -> list[bytes]:
    """Reduces the same tensors in each way; one digest for each."""
    rank = hosts.init(per_host)
    size = basics.size()
    alone, together, grouped, scattered = [], [], [], []
    for dtype in FLOATS:
        tensors = [of_rank(rank, shape, dtype, i) for i, shape in enumerate(SHAPES)]
        for op in OPS:
            names = [f"{dtype}{op}{i}" for i in range(len(tensors))]
            one_by_one = [
                client.allreduce(tensor, name, op, **FACTORS).wait()
                for tensor, name in zip(tensors, names)
            ]
            alone.append(one_by_one)
            handles = [
                client.allreduce(tensor, name, op, **FACTORS)
                for tensor, name in zip(tensors, names)
            ]
            together.append([handle.wait() for handle in handles])
            group = client.allreduce(tensors, f"{dtype}{op}", op, grouped=True, **FACTORS)
            grouped.append(group.wait())
            # As rows of one element, gathered again: each rank has reduced its own.
            columns = [tensor.reshape(-1) for tensor in tensors]
            parts = client.reducescatter(columns, f"s{dtype}{op}", op, grouped=True, **FACTORS)
            whole = client.allgather(parts.wait(), f"g{dtype}", grouped=True)
            scattered.append(whole.wait())
    assert size == 1 or alone[0][4].tobytes() != of_rank(rank, SHAPES[4], FLOATS[0], 4).tobytes()
    return [_digest(results) for results in (alone, together, grouped, scattered)]


@pytest.mark.parametrize("size", [1, 3, 4])
def test_the_same_bits_every_way(size: int) -> None:
    runs = [
        ({**settings, "HOROVOD_TRANSPORT": transport}, size)
        for settings in (SETTINGS if size == 3 else SETTINGS[2:3])
        for transport in TRANSPORTS
    ]
    if size == 4:
        runs.append(({}, 2))  # two hosts of two ranks
    seen: dict[bytes, object] = {}
    for env, per_host in runs:
        for digests in run_ranks(_every_way, size, per_host, env=env, timeout_s=120):
            seen.update((digest, env) for digest in digests)
    assert len(seen) == 1, seen


def _without_some(per_host: int, joined: list[int]) -> list[bytes] | None:
    rank = hosts.init(per_host)
    results: list[list[Any]] = [[], [], []]
    if rank not in joined:
        # Each runs once those have joined.
        tensors = [of_rank(rank, shape, "float32", i) for i, shape in enumerate(SHAPES)]
        results[0] = [client.allreduce(t, f"a{i}").wait() for i, t in enumerate(tensors)]
        handles = [client.allreduce(t, f"b{i}") for i, t in enumerate(tensors)]
        results[1] = [handle.wait() for handle in handles]
        results[2] = client.allreduce(tensors, "c", grouped=True).wait()
    client.join().wait()
    return None if rank in joined else [_digest([tensors]) for tensors in results]


def test_the_same_bits_without_ranks_that_have_joined() -> None:
    seen: set[bytes] = set()
    for env in ({"HOROVOD_TRANSPORT": "shm"}, {"HOROVOD_TRANSPORT": "tcp"}, {}):
        per_host = 2 if not env else 4
        results = run_ranks(_without_some, 4, per_host, [1], env=env)
        assert results[1] is None
        seen.update(digest for digests in results if digests for digest in digests)
    assert len(seen) == 1
