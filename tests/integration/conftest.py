"""What the tests of horovodrun share."""

from __future__ import annotations

import contextlib
import os
import signal
import uuid

import pytest

from tests.harness.horovodrun import living


@pytest.fixture
def mark():
    text = f"mark-{uuid.uuid4().hex}"
    yield text
    for pid in living(text):  # only what a failed test has left
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
