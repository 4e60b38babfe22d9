"""Canaries: what `horovod.tensorflow._compat` relies on still holds in this TensorFlow."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.harness.ranks import run_ranks


def _control_inputs() -> dict[str, list[str]]:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()

    @tf.function
    def step(x):
        tf.print("before")
        results = [
            hvd.allreduce(x, name="first"),
            hvd.allgather([x], name="second"),
            hvd.broadcast(x, 0, name="third"),
            hvd.size_op(name="fourth"),
        ]
        hvd.allreduce(x, name="unused")
        hvd.barrier()
        tf.print("after")
        return results

    graph = step.get_concrete_function(tf.constant(1.0)).graph
    return {
        op.name: [control.type for control in op.control_inputs]
        for op in graph.get_operations()
        if op.type.startswith("Horovod") or op.type == "PrintV2"
    }


@pytest.mark.smoke
def test_a_function_does_not_chain_collectives():
    controls = run_ranks(_control_inputs, 1)[0]
    for name in ("first", "second", "third", "fourth"):
        assert controls[name] == []
    assert "unused" in controls, "an allreduce that nobody reads was pruned"
    assert controls["HorovodBarrier"] == ["PrintV2"], "the barrier is not in program order"
    assert controls["PrintV2_1"] == ["HorovodBarrier"], "what follows does not wait for the barrier"


def _twins_are_kept() -> tuple[int, int]:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    counts = []
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        # Of a constant, and twice the same: what a stateless op would be folded and merged for.
        sums = [hvd.allreduce(tf.constant(1.0), op=hvd.Sum, name=n) for n in ("a", "b")]
        options = tf.compat.v1.RunOptions(output_partition_graphs=True)
        metadata = tf.compat.v1.RunMetadata()
        session.run(sums, options=options, run_metadata=metadata)
        nodes = [node for graph in metadata.partition_graphs for node in graph.node]
        counts.append(sum(node.op == "HorovodAllreduce" for node in nodes))
        counts.append(int(sum(session.run(sums))))
    return counts[0], counts[1]


def test_the_graph_optimizer_keeps_every_collective():
    assert run_ranks(_twins_are_kept, 2) == [(2, 4)] * 2


def _autograph() -> tuple[float, str]:
    import tensorflow as tf

    from horovod.tensorflow import _compat

    def sign(x):
        if x > 0:
            return tf.constant(1.0)
        return tf.constant(-1.0)

    @_compat.without_autograph
    def ours(x):
        with pytest.raises(tf.errors.OperatorNotAllowedInGraphError):
            sign(x)
        return inner(x)

    @_compat.without_autograph
    def inner(x):
        return _compat.as_outside(sign)(x)

    def step(x):
        return ours(x)

    converted = tf.function(step)(tf.constant(2.0))
    with pytest.raises(tf.errors.OperatorNotAllowedInGraphError):
        tf.function(step, autograph=False)(tf.constant(2.0))
    with pytest.raises(tf.errors.OperatorNotAllowedInGraphError):
        tf.function(tf.autograph.experimental.do_not_convert(step))(tf.constant(2.0))
    return float(converted), ours.__name__


def test_autograph_converts_a_users_function_alone():
    assert run_ranks(_autograph, 1) == [(1.0, "ours")]


def _raw_library() -> float:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    ops = tf.load_op_library(hvd.op_library_path())
    result = ops.horovod_allreduce(
        tf.constant(2.0), reduce_op=1, prescale_factor=1.0, postscale_factor=1.0
    )
    return float(result)


@pytest.mark.smoke
def test_programs_may_load_the_op_library_themselves():
    assert run_ranks(_raw_library, 2) == [4.0, 4.0]


def test_importing_horovod_alone_loads_no_tensorflow_and_no_library():
    code = (
        "import horovod, sys; assert 'tensorflow' not in sys.modules; "
        "assert not [line for line in open('/proc/self/maps') if 'libhorovod' in line]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def _other_version(path: str) -> tuple[str, str]:
    import tensorflow as tf

    from horovod.tensorflow import _ops

    with open(path, "wb") as file:
        file.write(b"\x7fELF..." + b"horovod built for tensorflow 1.15.0\0" + b"\0" * 64)
    _ops.library.cache_clear()
    _ops.op_library_path = lambda: path
    with pytest.raises(ImportError) as caught:
        _ops.library()
    return str(caught.value), tf.__version__


def test_a_library_for_another_tensorflow_names_both_versions(tmp_path):
    text, installed = run_ranks(_other_version, 1, str(tmp_path / "_tf_ops.so"))[0]
    assert "1.15.0" in text and installed in text and f"make build TF={installed}" in text


def _does_not_load(path: str) -> str:
    import tensorflow as tf

    from horovod.tensorflow import _ops

    with open(path, "wb") as file:
        marker = b"horovod built for tensorflow " + tf.__version__.encode() + b"\0"
        file.write(marker.rjust(4096, b"x"))  # not ELF, but long enough for its header
    _ops.library.cache_clear()
    _ops.op_library_path = lambda: path
    with pytest.raises(ImportError) as caught:
        _ops.library()
    return str(caught.value)


def test_a_library_that_does_not_load_shows_the_loaders_error(tmp_path):
    path = str(tmp_path / "_tf_ops.so")
    assert "invalid ELF header" in run_ranks(_does_not_load, 1, path)[0]
