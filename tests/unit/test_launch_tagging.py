"""LineTagger: whole lines, marked, whatever the bytes and however they are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovod.runner.tagging import LineTagger

_TAG = b"[1]<stdout>:"


def feed_all(pieces, **options):
    tagger = LineTagger(lambda: _TAG, **options)
    return [tagger.feed(piece) for piece in pieces] + [tagger.close()]


@pytest.mark.parametrize(
    ("pieces", "outs"),
    [
        ([], [b""]),
        ([b"a\n"], [_TAG + b"a\n", b""]),
        ([b"a\nb\n"], [_TAG + b"a\n" + _TAG + b"b\n", b""]),
        ([b"a", b"b\nc"], [b"", _TAG + b"ab\n", _TAG + b"c\n"]),
        ([b"\n\n"], [(_TAG + b"\n") * 2, b""]),
        ([b"\xe2", b"\x82\xac\n"], [b"", _TAG + b"\xe2\x82\xac\n", b""]),
        ([b"1%\r2%\r\n"], [_TAG + b"1%\r2%\r\n", b""]),
    ],
)
def test_lines(pieces, outs):
    assert feed_all(pieces) == outs


@pytest.mark.parametrize(
    ("pieces", "outs"),
    [
        ([b"1%\r2%"], [_TAG + b"1%\r", _TAG + b"2%\n"]),
        ([b"a\r\nb"], [_TAG + b"a\r\n", _TAG + b"b\n"]),
        ([b"a\r", b"\n"], [b"", _TAG + b"a\r\n", b""]),
        ([b"a\r", b"b"], [b"", _TAG + b"a\r", _TAG + b"b\n"]),
    ],
)
def test_lines_on_a_terminal(pieces, outs):
    assert feed_all(pieces, cut_at_returns=True) == outs


def test_a_line_without_end_is_cut():
    assert feed_all([b"x" * 5, b"y"], max_line_bytes=4) == [_TAG + b"xxxxx\n", b"", _TAG + b"y\n"]


@given(st.lists(st.binary(max_size=20)), st.booleans())
def test_without_the_tags_the_bytes_are_the_same(pieces, cut_at_returns):
    text = b"".join(pieces).replace(_TAG, b"")
    out = b"".join(feed_all(pieces, cut_at_returns=cut_at_returns)).replace(_TAG, b"")
    assert out in (text, text + b"\n")


@given(st.lists(st.text("ab\n", max_size=9).map(str.encode)))
def test_every_line_begins_with_a_tag(pieces):
    for line in b"".join(feed_all(pieces)).splitlines():
        assert line.startswith(_TAG)
