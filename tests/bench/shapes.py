"""Gradient shapes of two well-known models, computed from their architecture.

ResNet-50: He et al., arXiv:1512.03385, as trained on ImageNet: 161 tensors, 102 MB of float32.
BERT-base: Devlin et al., arXiv:1810.04805, uncased: 199 tensors, 110 million parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

__all__ = ["BERT_BASE", "RESNET_50"]

_Shape = tuple[int, ...]


def _conv_and_norm(size: int, inputs: int, outputs: int) -> Iterator[_Shape]:
    yield (size, size, inputs, outputs)
    yield from ((outputs,), (outputs,))  # scale and shift of the batch normalisation


def _resnet_50() -> Iterator[_Shape]:
    yield from _conv_and_norm(7, 3, 64)
    inputs = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            yield from _conv_and_norm(1, inputs, width)
            yield from _conv_and_norm(3, width, width)
            yield from _conv_and_norm(1, width, 4 * width)
            if block == 0:
                yield from _conv_and_norm(1, inputs, 4 * width)
            inputs = 4 * width
    yield from ((inputs, 1000), (1000,))


def _dense(inputs: int, outputs: int) -> tuple[_Shape, _Shape]:
    return (inputs, outputs), (outputs,)


def _bert(hidden: int, layers: int, vocabulary: int, positions: int) -> Iterator[_Shape]:
    norm = ((hidden,), (hidden,))
    yield from ((vocabulary, hidden), (positions, hidden), (2, hidden), *norm)
    for _ in range(layers):
        yield from chain(*(_dense(hidden, hidden) for _ in range(4)), norm)  # query to output
        yield from chain(_dense(hidden, 4 * hidden), _dense(4 * hidden, hidden), norm)
    yield from _dense(hidden, hidden)  # the pooler


RESNET_50 = tuple(_resnet_50())
BERT_BASE = tuple(_bert(hidden=768, layers=12, vocabulary=30522, positions=512))
