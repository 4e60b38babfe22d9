"""Trains a network on handwritten digits in a plain Session, with the GPU of the local rank.

    horovodrun -np 2 python examples/local_rank_digits.py
    horovodrun -np 2 python examples/local_rank_digits.py --by_hand   # the tutorial's last part

After a tutorial that circulates on the web ("how to use local_rank()").  The numbers are those of
its parts.  Comments that begin with "Changed:" say what it has otherwise, and why that cannot work.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow loads

# 2.  Changed: was "import tensorflow as tf".  What the tutorial calls is TensorFlow 1's.
import tensorflow.compat.v1 as tf
from digits_data import (
    NUM_CLASSES,
    NUM_LEVELS,
    SIDE_PIXELS,
    DigitsFiles,
    count_records,
    default_data_dir,
    parse_digit,
    write_digits,
)
from weights_digest import weights_digest

import horovod.tensorflow as hvd

BATCH_SIZE = 32
NUM_EPOCHS = 25


def parse_arguments() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--data_dir", default=default_data_dir(), help="folder of the TFRecords")
    parser.add_argument(
        "--by_hand", action="store_true", help="average gradients with hvd.allreduce"
    )
    return parser.parse_args()


def model(images: Any) -> Any:
    """Builds the network: int32 images [n, 8, 8] to float32 logits [n, 10]."""
    pixels = SIDE_PIXELS * SIDE_PIXELS
    levels = tf.reshape(tf.cast(images, tf.float32) / (NUM_LEVELS - 1), [-1, pixels])
    with tf.variable_scope("model", reuse=tf.AUTO_REUSE):
        hidden = tf.nn.relu(
            levels @ tf.get_variable("hidden_kernel", [pixels, 64])
            + tf.get_variable("hidden_bias", [64])
        )
        kernel = tf.get_variable("kernel", [64, NUM_CLASSES])
        return hidden @ kernel + tf.get_variable("bias", [NUM_CLASSES])


def train(by_hand: bool, files: DigitsFiles, train_count: int, test_count: int) -> None:
    """Trains on this rank.

    Args:
      by_hand: whether gradients are averaged as in part 12, and not as in part 9.
      files: the images.
      train_count: how many there are to train on.
      test_count: and to test with.
    """
    # 4. Who this process is, and how many there are.
    rank = hvd.rank()
    size = hvd.size()

    # 5 and 6. One GPU per process, numbered within the host.
    config = tf.ConfigProto()
    config.gpu_options.visible_device_list = str(hvd.local_rank())
    # Changed: added, so that part 12 runs without a GPU as well.
    config.allow_soft_placement = True

    # 7. Build the model.  Each rank reads its part of the images.
    d = tf.data.TFRecordDataset(files.train).shard(size, rank)
    d = d.shuffle(2000).repeat().map(parse_digit).batch(BATCH_SIZE)
    images, labels = tf.data.make_one_shot_iterator(d).get_next()
    logits = model(images)

    # 8. The loss and the optimizer.
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    optimizer = tf.train.AdamOptimizer(0.002 * size)

    if not by_hand:
        # 9. Let Horovod average the gradients.
        optimizer = hvd.DistributedOptimizer(optimizer)
        train_op = optimizer.minimize(loss)
    else:
        # 12. Average the gradients by hand.
        # Changed: with the optimizer as it is.  That of part 9 averages already; another average
        # over them changes nothing, but sends everything twice.
        # Changed: "/gpu:0" was "/gpu:{hvd.local_rank()}".  A process sees one GPU, by part 6, and
        # the only one has number 0.
        with tf.device("/gpu:0"):
            grads_and_vars = optimizer.compute_gradients(loss)
        grads_and_vars = [(grad, var) for grad, var in grads_and_vars if grad is not None]
        grads_and_vars = hvd.allreduce(grads_and_vars)
        train_op = optimizer.apply_gradients(grads_and_vars)

    d = tf.data.TFRecordDataset(files.test).map(parse_digit).batch(test_count)
    test_images, test_labels = tf.data.experimental.get_single_element(d)
    predicted = tf.argmax(model(test_images), axis=-1, output_type=tf.int32)
    accuracy = tf.reduce_mean(tf.cast(tf.equal(predicted, test_labels), tf.float32))

    start_s = time.monotonic()
    # Changed: the session comes last.  It sees a graph that is built, variables included.
    with tf.Session(config=config) as sess:
        # 10. Changed: after minimize(), which makes variables too: Adam's slots.
        sess.run(tf.global_variables_initializer())

        # 11. Changed: EVERY rank initializes and broadcasts.  The tutorial does both under
        # "if rank == 0": the others' variables would have no values, and rank 0 would wait for
        # them to receive its own.
        sess.run(hvd.BroadcastGlobalVariablesOp(0))

        # Changed: the ranks share an epoch's batches.  And one rank prints, not all.
        for epoch in range(NUM_EPOCHS):
            for _ in range(train_count // BATCH_SIZE // size):
                _, loss_val = sess.run([train_op, loss])
            if rank == 0 and (epoch + 1) % 5 == 0:
                print(f"Epoch: {epoch}, Loss: {loss_val:.4f}")

        if rank == 0:
            print(f"test accuracy: {sess.run(accuracy):.4f}")
            print(f"seconds: {time.monotonic() - start_s:.1f}")
        weights = sess.run({variable.name: variable for variable in tf.trainable_variables()})
        print(f"weights digest: {weights_digest(weights)}", flush=True)


def main() -> None:
    """Runs the example on this rank."""
    args = parse_arguments()
    # 3. Once, before anything asks for the rank.
    hvd.init()
    files = write_digits(args.data_dir)
    counts = count_records(files.train), count_records(files.test)
    # Changed: a graph, which TensorFlow 2 has to be asked for.
    with tf.Graph().as_default():
        tf.set_random_seed(1 + hvd.rank())  # each rank shuffles its own way, and so in every run
        train(args.by_hand, files, *counts)


if __name__ == "__main__":
    main()
