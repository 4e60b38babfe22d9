"""One moment of each fault on each transport; `make test-faults` tries many."""

from __future__ import annotations

import pytest

from tests.faults.__main__ import run_all
from tests.faults.catalog import FAULTS, TRANSPORTS, Fault, draw, fault_named

_NUMBER = 1  # in training, and the ranks meet again where they can
_SEED = 1


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_ends_as_it_must(transport: str, fault: Fault) -> None:
    # Five times the bounds: the machine may do other work.
    results, failures = run_all([draw(_SEED, transport, fault, _NUMBER)], jobs=1, slack=5.0)
    assert failures == []
    assert len(results) == 1


def test_a_transport_that_the_build_lacks_fails_the_run() -> None:
    _, failures = run_all([draw(_SEED, "pigeon", fault_named("kill"), _NUMBER)], jobs=1)
    assert "HOROVOD_TRANSPORT is 'pigeon'" in failures[0]
