"""pin_gpu, with TensorFlow's list of GPUs replaced by a fake: the tests need none."""

from __future__ import annotations

import pytest

from tests.harness.pool import run_ranks


def _pins() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    with pytest.raises(ValueError, match=r"init\(\) first"):
        hvd.pin_gpu()
    hvd.init()
    rank = hvd.rank()
    config = tf.compat.v1.ConfigProto()
    done: list[tuple[object, ...]] = []
    gpus: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tf.config, "list_physical_devices", lambda kind: list(gpus))
        patch.setattr(tf.config, "set_visible_devices", lambda *a: done.append(("visible", *a)))
        patch.setattr(
            tf.config.experimental, "set_memory_growth", lambda *a: done.append(("growth", *a))
        )

        # No GPU: nothing happens.
        assert hvd.pin_gpu() is None
        assert hvd.pin_gpu(config) is config
        assert done == [] and config == tf.compat.v1.ConfigProto()

        gpus[:] = ["gpu 0", "gpu 1", "gpu 2"]
        assert hvd.pin_gpu() == f"gpu {rank}"
        assert done == [("visible", f"gpu {rank}", "GPU"), ("growth", f"gpu {rank}", True)]
        done.clear()
        assert hvd.pin_gpu(memory_growth=False) == f"gpu {rank}" and done[1][2] is False
        done.clear()
        assert hvd.pin_gpu(config) is config and done == []
        assert config.gpu_options.visible_device_list == str(rank)
        assert config.gpu_options.allow_growth

        # Fewer GPUs than ranks: every rank of the host is told, the one with a GPU too.
        gpus[:] = ["gpu 0"]
        patch.setenv("CUDA_VISIBLE_DEVICES", "7")
        for arguments in ((), (config,)):
            with pytest.raises(ValueError) as caught:
                hvd.pin_gpu(*arguments)
            text = str(caught.value)
            assert f"rank {rank} is local rank {rank} of 2" in text and "sees 1 GPU(s)" in text
            assert "CUDA_VISIBLE_DEVICES=7" in text and "at most 1 ranks" in text
        assert hvd.pin_gpu(oversubscribe=True) == "gpu 0"
        assert hvd.pin_gpu(config, oversubscribe=True).gpu_options.visible_device_list == "0"

        def too_late(*_):
            raise RuntimeError("Visible devices cannot be modified after being initialized")

        gpus[:] = ["gpu 0", "gpu 1"]
        patch.setattr(tf.config, "set_visible_devices", too_late)
        with pytest.raises(RuntimeError, match=rf"number {rank} alone .*right after hvd\.init"):
            hvd.pin_gpu()


def test_pin_gpu_with_fake_gpus():
    run_ranks(_pins, 2)


def _without() -> bool:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    return hvd.pin_gpu() is None or bool(tf.config.list_physical_devices("GPU"))


@pytest.mark.smoke
def test_a_host_without_gpus_is_left_alone():
    assert run_ranks(_without, 2) == [True, True]
