"""What the tests of join share."""

from __future__ import annotations

import numpy as np
import pytest

from horovod.common import basics, core
from tests.core import client

__all__ = ["error_of", "everybody", "join_last"]


def join_last(last: int) -> int:
    """All ranks join, `last` after all others; returns what the join says."""
    if basics.rank() == last:
        # The others have no part in it, so it runs once they have joined.
        assert client.allreduce(np.float32(1), "alone").wait() == 1
    return int(client.join().wait())


def everybody() -> None:
    """Fails unless all ranks work together."""
    size = basics.size()
    assert client.allreduce(np.float32(1), "everybody").wait() == size
    assert client.allgather(np.zeros(2), "everybody's").wait().shape == (2 * size,)


def error_of(handle: client.Handle) -> tuple[int, str]:
    """Waits for it to fail; returns the code and the text."""
    with pytest.raises(core.CoreError) as error:
        handle.wait()
    return error.value.code, str(error.value)
