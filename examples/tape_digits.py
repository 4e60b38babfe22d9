"""Trains a Keras model on handwritten digits with GradientTape, in TensorFlow 2's way.

    horovodrun -np 2 python examples/tape_digits.py

After a tutorial that circulates on the web ("Horovod: a framework for distributed deep learning").
Comments that begin with "Changed:" say what it has otherwise, and why that cannot work.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow loads

import numpy as np
import tensorflow as tf
from digits_data import (
    NUM_LEVELS,
    SIDE_PIXELS,
    count_records,
    default_data_dir,
    parse_digit,
    write_digits,
)
from weights_digest import weights_digest

import horovod.tensorflow as hvd


def parse_arguments() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--data_dir", default=default_data_dir(), help="folder of the TFRecords")
    return parser.parse_args()


def load_data(data_dir: str) -> list[tuple[Any, Any]]:
    """Returns (images, labels) to train on and to test with, as NumPy arrays, levels 0 to 16."""
    return [
        next(
            tf.data.TFRecordDataset(path)
            .map(parse_digit)
            .batch(count_records(path))
            .as_numpy_iterator()
        )
        for path in write_digits(data_dir)
    ]


def main() -> None:
    """Runs the example on this rank."""
    args = parse_arguments()
    hvd.init()
    # Changed: added.  Each rank has one GPU, that of its local rank; without GPUs nothing happens.
    hvd.pin_gpu()
    # Each rank shuffles its own way, and so in every run.
    tf.keras.utils.set_random_seed(1 + hvd.rank())

    # Changed: 64 was 784, the pixels of MNIST, which would have to be downloaded.
    pixels = SIDE_PIXELS * SIDE_PIXELS
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Dense(128, activation="relu", input_shape=(pixels,)),
            tf.keras.layers.Dense(10, activation="softmax"),
        ]
    )
    optimizer = tf.keras.optimizers.Adam(0.001 * hvd.size())

    # Changed: was "model = hvd.DistributedOptimizer(optimizer).model", but no optimizer has a
    # model.  In a loop of one's own the tape averages the gradients; see train_step.

    (train_images, train_labels), (test_images, test_labels) = load_data(args.data_dir)
    # Changed: one row per image, as the first layer takes them.
    train_images = np.float32(train_images / (NUM_LEVELS - 1)).reshape([-1, pixels])
    test_images = np.float32(test_images / (NUM_LEVELS - 1)).reshape([-1, pixels])

    # Changed: each rank takes its part.  The tutorial gives all images to every rank, so that all
    # compute the same.  drop_remainder: as many batches, and as large ones, on every rank.
    train_dataset = (
        tf.data.Dataset.from_tensor_slices((train_images, train_labels))
        .shard(hvd.size(), hvd.rank())
        .shuffle(2000)
        .batch(64, drop_remainder=True)
    )
    test_dataset = tf.data.Dataset.from_tensor_slices((test_images, test_labels)).batch(64)

    # Changed: all ranks start from rank 0's weights.  The tutorial forgets it, and every rank would
    # train a model of its own with the others' gradients.
    hvd.broadcast_variables(model.trainable_variables, root_rank=0)

    @tf.function
    def train_step(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            predictions = model(images)
            # Changed: the mean.  The function returns a loss per image, and a gradient of those is
            # that of their sum, 64 times as large.
            loss = tf.reduce_mean(
                tf.keras.losses.sparse_categorical_crossentropy(labels, predictions)
            )
        # Changed: added.  From here on the tape's gradients are averages over the ranks.
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    start_s = time.monotonic()
    # Changed: 40 epochs were 5; MNIST has 40 times as many images.  And one rank prints, not all.
    for epoch in range(40):
        for images, labels in train_dataset:
            loss = train_step(images, labels)
        if hvd.rank() == 0 and (epoch + 1) % 20 == 0:
            print(f"Epoch {epoch}: Loss {loss.numpy():.4f}")

    # Changed: evaluate() needs a compiled model; and one rank is enough, since all have the same.
    if hvd.rank() == 0:
        model.compile(loss="sparse_categorical_crossentropy", metrics=["accuracy"])
        test_loss, test_acc = model.evaluate(test_dataset, verbose=0)
        print(f"test loss: {test_loss:.4f}")
        print(f"test accuracy: {test_acc:.4f}")
        print(f"seconds: {time.monotonic() - start_s:.1f}")
    weights = {str(place): weight for place, weight in enumerate(model.get_weights())}
    print(f"weights digest: {weights_digest(weights)}", flush=True)


if __name__ == "__main__":
    main()
