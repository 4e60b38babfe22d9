"""What a rank gets of the environment that the benchmark is called in."""

from __future__ import annotations

import os

__all__ = ["environment"]

# What the caller's environment says about these would hold for one system and not for another.
_NOT_INHERITED = ("HOROVOD_", "OMPI_", "PMI_", "PMIX_", "PRTE_", "TF_", "OMP_", "GLOO_", "BENCH_")


def environment() -> dict[str, str]:
    """Returns this process's variables without those that would set a knob of what is measured."""
    return {k: v for k, v in os.environ.items() if not k.startswith(_NOT_INHERITED)}
