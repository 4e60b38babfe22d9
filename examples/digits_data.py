"""Handwritten digits as TFRecord files: the input of the examples.

The images are scikit-learn's `load_digits`: 1,797 real digits of 8x8 pixels, each pixel a level
from 0 to 16.  They come inside scikit-learn's wheel, so nothing is downloaded.

Every rank calls `write_digits` on the same folder, and no rank waits for another.  That is safe:
each writes a file of its own and then renames it, so a reader sees a whole file or none, and the
split is fixed, so all ranks write the same bytes and the last rename changes nothing.  It also
holds where the hosts share no file system, which "rank 0 alone writes" would not.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

__all__ = [
    "DigitsFiles",
    "NUM_CLASSES",
    "NUM_LEVELS",
    "SIDE_PIXELS",
    "count_records",
    "default_data_dir",
    "parse_digit",
    "vary_levels",
    "write_digits",
]

NUM_CLASSES = 10
NUM_LEVELS = 17  # a pixel is 0 (white) to 16 (black)
SIDE_PIXELS = 8

_TEST_SHARE = 0.2
_SPLIT_SEED = 0


class DigitsFiles(NamedTuple):
    """The two TFRecord files: 1,437 images to train on and 360 to test with."""

    train: str
    test: str


def default_data_dir() -> str:
    """Returns a folder for the files that this user can write, the same on every rank of a host."""
    return str(Path(tempfile.gettempdir()) / f"horovod-digits-{os.getuid()}")


def write_digits(data_dir: str) -> DigitsFiles:
    """Writes the digits to `data_dir`, unless they are there, and returns where they are.

    Args:
      data_dir: folder of the files; made if missing.

    Returns:
      The paths of both files, each of them complete.

    Raises:
      OSError: the folder cannot be made or written.
    """
    files = DigitsFiles(
        train=os.path.join(data_dir, "digits-train.tfrecord"),
        test=os.path.join(data_dir, "digits-test.tfrecord"),
    )
    if all(os.path.exists(path) for path in files):
        return files

    # Here and not above: it takes a second, and a second run does not need it.
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]
    from sklearn.model_selection import train_test_split  # type: ignore[import-untyped]

    digits = load_digits()
    # Each digit has the same share in both files.
    train_images, test_images, train_labels, test_labels = train_test_split(
        digits.images.astype("uint8"),
        digits.target,
        test_size=_TEST_SHARE,
        random_state=_SPLIT_SEED,
        stratify=digits.target,
    )
    os.makedirs(data_dir, exist_ok=True)
    _write_records(files.train, train_images, train_labels)
    _write_records(files.test, test_images, test_labels)
    return files


def count_records(path: str) -> int:
    """Returns the number of records in a TFRecord file.

    REQUIRES: eager execution, so call it before a graph is the default one.
    """
    return sum(1 for _ in tf.data.TFRecordDataset(path))


def parse_digit(record: Any) -> tuple[Any, Any]:
    """Turns one record into one image and its label, as a step of a `tf.data` pipeline.

    Args:
      record: string tensor of shape []: a serialized `tf.train.Example`.

    Returns:
      The image, int32 of shape [8, 8], levels 0 to 16; and the label, int32 of shape [], 0 to 9.
    """
    example = tf.io.parse_single_example(
        record,
        {
            "image": tf.io.FixedLenFeature([], tf.string),
            "label": tf.io.FixedLenFeature([], tf.int64),
        },
    )
    image = tf.reshape(tf.io.decode_raw(example["image"], tf.uint8), [SIDE_PIXELS, SIDE_PIXELS])
    return tf.cast(image, tf.int32), tf.cast(example["label"], tf.int32)


def vary_levels(images: Any) -> Any:
    """Moves each pixel by up to two levels, at random, so that training sees no image twice.

    Args:
      images: int32 of any shape, levels 0 to 16.

    Returns:
      The same shape and type, levels 0 to 16.
    """
    noise = tf.random.uniform(tf.shape(images), -2, 3, tf.int32)
    return tf.clip_by_value(images + noise, 0, NUM_LEVELS - 1)


def _write_records(path: str, images: Any, labels: Any) -> None:
    """Writes images, uint8 [n, 8, 8], and labels, int [n], to `path` in one atomic step."""
    # In the same folder, because a rename is atomic only within one file system.
    descriptor, part = tempfile.mkstemp(dir=os.path.dirname(path), suffix=".part")
    os.close(descriptor)
    try:
        with tf.io.TFRecordWriter(part) as writer:
            for image, label in zip(images, labels):
                writer.write(_example(image, label).SerializeToString())
        os.replace(part, path)
    except BaseException:
        os.unlink(part)
        raise


def _example(image: Any, label: Any) -> Any:
    return tf.train.Example(
        features=tf.train.Features(
            feature={
                "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image.tobytes()])),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[int(label)])),
            }
        )
    )
