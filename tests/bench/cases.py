"""What every system is asked to do.  Data; no framework is imported here."""

from __future__ import annotations

from dataclasses import dataclass

from tests.bench.shapes import BERT_BASE, RESNET_50

__all__ = ["CASES", "Case", "case_named"]

_KIB, _MIB = 1 << 10, 1 << 20
_SIZES = {"4 B": 4, "64 KiB": 64 * _KIB, "1 MiB": _MIB, "16 MiB": 16 * _MIB, "64 MiB": 64 * _MIB}


@dataclass(frozen=True)
class Case:
    """One row of the table.

    Attributes:
      name: unique, e.g. "allreduce 1 MiB".
      collective: "allreduce", "allgather", "broadcast", "alltoall" or "reducescatter"; for "step"
        the model: "cnn" or "transformer".
      mode: "eager", "session" (a graph, run by a tf.compat.v1 Session), or "step" (a training step
        in a tf.function, with a gradient tape).
      dtype: of the tensors, by its name in TensorFlow.
      shapes: of each rank's input tensors, one collective each, all in flight at once.
      judged: "gross" or "net" of the baseline: what the ratio to the peer is taken of.
      quick: also in the quick run.
    """

    name: str
    collective: str
    mode: str
    dtype: str
    shapes: tuple[tuple[int, ...], ...]
    judged: str
    quick: bool


def _one(collective: str, size: str, judged: str, quick: bool, dtype: str = "float32") -> Case:
    width = 2 if dtype.endswith("16") else 4
    kind = "" if dtype == "float32" else f" {dtype}"
    shape = (_SIZES[size] // width,)
    return Case(f"{collective}{kind} {size}", collective, "session", dtype, (shape,), judged, quick)


def _allreduce(name: str, shapes: tuple[tuple[int, ...], ...], quick: bool) -> Case:
    return Case(f"allreduce {name}", "allreduce", "session", "float32", shapes, "net", quick)


CASES = (
    Case("eager 4 B", "allreduce", "eager", "float32", ((1,),), "gross", True),
    _one("allreduce", "4 B", "gross", True),
    _one("allreduce", "64 KiB", "gross", True),
    _one("allreduce", "1 MiB", "net", True),
    _one("allreduce", "16 MiB", "net", True),
    _one("allreduce", "64 MiB", "net", False),
    _one("allreduce", "16 MiB", "net", False, "float16"),
    _one("allreduce", "16 MiB", "net", False, "bfloat16"),
    _allreduce("200 x 4 KiB", ((_KIB,),) * 200, True),
    _allreduce("1000 x 64 B", ((16,),) * 1000, False),
    _allreduce("ResNet-50", RESNET_50, True),
    _allreduce("BERT-base", BERT_BASE, False),
    *(
        _one(collective, size, "net", False)
        for collective in ("allgather", "broadcast", "alltoall", "reducescatter")
        for size in ("1 MiB", "16 MiB")
    ),
    Case("step cnn", "cnn", "step", "float32", (), "gross", False),
    Case("step transformer", "transformer", "step", "float32", (), "gross", False),
)


def case_named(name: str) -> Case:
    """Finds a case.

    Raises:
      ValueError: there is none of this name.
    """
    for case in CASES:
        if case.name == name:
            return case
    raise ValueError(f"no case {name!r}; there are: {', '.join(c.name for c in CASES)}")
