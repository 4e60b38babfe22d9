"""Sink: order, fullness, and an output that breaks."""

from __future__ import annotations

import os
import threading
import time

from horovod.runner.sink import _FULL_BYTES, Sink


def wait_for(condition):
    deadline_s = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline_s:
        time.sleep(0.005)
    assert condition()


def test_writes_in_order_and_becomes_idle():
    read_fd, write_fd = os.pipe()
    sink = Sink(write_fd, lambda: None)
    for i in range(100):
        sink.put(b"%d\n" % i)
    wait_for(lambda: sink.idle)
    assert os.read(read_fd, 65536) == b"".join(b"%d\n" % i for i in range(100))
    sink.close()
    os.close(read_fd)
    os.close(write_fd)


def test_is_full_while_the_reader_sleeps_and_rings_when_it_reads():
    read_fd, write_fd = os.pipe()
    rung = threading.Event()
    sink = Sink(write_fd, rung.set)
    sink.put(b"x" * (_FULL_BYTES + 100))
    assert sink.full and not sink.idle
    got = 0
    while got < _FULL_BYTES + 100:
        got += len(os.read(read_fd, 65536))
    assert rung.wait(20)
    wait_for(lambda: sink.idle)
    sink.close()
    os.close(read_fd)
    os.close(write_fd)


def test_a_broken_output_is_noticed_and_drops_the_rest():
    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    sink = Sink(write_fd, lambda: None)
    sink.put(b"x")
    wait_for(lambda: sink.broken)
    assert isinstance(sink.broken, BrokenPipeError)
    sink.put(b"y" * _FULL_BYTES)
    assert sink.idle and not sink.full
    os.close(write_fd)


def test_a_non_blocking_output_loses_nothing():
    read_fd, write_fd = os.pipe()
    os.set_blocking(write_fd, False)
    sink = Sink(write_fd, lambda: None)
    sink.put(b"x" * 300_000)
    got = 0
    while got < 300_000:
        got += len(os.read(read_fd, 65536))
    wait_for(lambda: sink.idle)
    assert sink.broken is None
    sink.close()
    os.close(read_fd)
    os.close(write_fd)
