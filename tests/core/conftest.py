"""The tests of the core run over every transport by which processes of one host may speak."""

from __future__ import annotations

import pytest

TRANSPORTS = ("shm", "tcp")


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Ranks started by the test use this transport; for modules that ask for it."""
    name = str(request.param)
    monkeypatch.setenv("HOROVOD_TRANSPORT", name)
    return name
