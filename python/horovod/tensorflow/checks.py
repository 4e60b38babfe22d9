"""Small questions about the installation that programs ask."""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf

from horovod.common.util import num_rank_is_power_2

__all__ = ["check_extension", "check_num_rank_power_of_2", "gpu_available"]


def gpu_available(ext_base_name: str = "tensorflow", verbose: bool = False) -> bool:
    """Returns whether TensorFlow sees a GPU.

    Example:
      >>> hvd.gpu_available() == bool(tf.config.list_physical_devices("GPU"))
      True

    Args:
      ext_base_name: "tensorflow", the only framework here.
      verbose: whether to print the answer and what was found.

    Raises:
      ValueError: another framework.
    """
    if ext_base_name != "tensorflow":
        raise ValueError(f"gpu_available: no support for {ext_base_name!r}, only for 'tensorflow'")
    gpus = tf.config.list_physical_devices("GPU")
    if verbose:
        print(f"gpu_available: TensorFlow {tf.__version__} sees {len(gpus)} GPUs: {gpus}")
    return bool(gpus)


def check_num_rank_power_of_2(num_rank: int) -> bool:
    """Returns whether a number of ranks is 1, 2, 4, 8 and so on.

    Example:
      >>> [n for n in range(9) if hvd.check_num_rank_power_of_2(n)]
      [1, 2, 4, 8]
    """
    return num_rank_is_power_2(num_rank)


def check_extension(ext_name: str, ext_env_var: str, pkg_path: str, *args: str) -> None:
    """Checks that the op library of a framework was built.

    Example:
      >>> hvd.check_extension("horovod.tensorflow", "HOROVOD_WITH_TENSORFLOW", hvd.__file__)

    Args:
      ext_name: the package that needs it, as in "horovod.tensorflow".
      ext_env_var: the environment variable that asked for it in releases that were built by pip;
        named in the error.
      pkg_path: a file of that package; the library lies in the same folder.
      *args: base names that the library may have; default: "_tf_ops".

    Raises:
      ImportError: none of them is there.
    """
    folder = Path(pkg_path).resolve().parent
    names = args or ("_tf_ops",)
    # Programs ask for "mpi_lib", the library's name in the releases they were written for.
    files = [folder / f"{'_tf_ops' if name == 'mpi_lib' else name}.so" for name in names]
    if not any(file.exists() for file in files):
        raise ImportError(
            f"{ext_name}: no op library in {folder}: none of {[file.name for file in files]}; "
            f"run: make build ({ext_env_var} is not needed)"
        )
