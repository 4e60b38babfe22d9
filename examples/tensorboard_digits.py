"""Trains a network on handwritten digits and shows the training in TensorBoard.

    horovodrun -np 2 python examples/tensorboard_digits.py --logdir /tmp/tensorboard
    tensorboard --logdir /tmp/tensorboard

After a tutorial that circulates on the web ("model-parallel training on several GPUs"; what it
shows is data-parallel).  Comments that begin with "Changed:" say what it has otherwise, and why
that cannot work.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow loads

# Changed: was "import tensorflow as tf".  What the tutorial calls is TensorFlow 1's.
import tensorflow.compat.v1 as tf
from digits_data import (
    NUM_CLASSES,
    NUM_LEVELS,
    SIDE_PIXELS,
    count_records,
    default_data_dir,
    parse_digit,
    write_digits,
)
from weights_digest import WeightsDigestHook

import horovod.tensorflow as hvd

BATCH_SIZE = 32


def parse_arguments() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--data_dir", default=default_data_dir(), help="folder of the TFRecords")
    parser.add_argument("--logdir", help="for TensorBoard; default: one deleted at the end")
    return parser.parse_args()


def model_fn(features: Any) -> Any:
    """Builds the model architecture: int32 images [n, 8, 8] to float32 logits [n, 10]."""
    pixels = SIDE_PIXELS * SIDE_PIXELS
    levels = tf.reshape(tf.cast(features, tf.float32) / (NUM_LEVELS - 1), [-1, pixels])
    with tf.variable_scope("model", reuse=tf.AUTO_REUSE):
        kernel = tf.get_variable("hidden_kernel", [pixels, 64])
        hidden = tf.nn.relu(levels @ kernel + tf.get_variable("hidden_bias", [64]))
        kernel = tf.get_variable("kernel", [64, NUM_CLASSES])
        logits = hidden @ kernel + tf.get_variable("bias", [NUM_CLASSES])
    return logits


def loss_fn(logits: Any, labels: Any) -> Any:
    """Builds the loss of a batch, a scalar."""
    loss = tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    )
    return loss


def train(args: argparse.Namespace, tb_dir: str) -> None:
    """Builds the graph and trains on this rank."""
    files = write_digits(args.data_dir)
    train_count, test_count = count_records(files.train), count_records(files.test)
    num_steps = 40 * train_count // BATCH_SIZE // hvd.size()

    # Changed: a graph, which TensorFlow 2 has to be asked for.
    with tf.Graph().as_default():
        tf.set_random_seed(1 + hvd.rank())  # each rank shuffles its own way, and so in every run
        config = tf.ConfigProto()
        config.gpu_options.visible_device_list = str(hvd.local_rank())

        # Changed: 0.2 was 0.001, far too small for so few steps.
        optimizer = tf.train.GradientDescentOptimizer(0.2 * hvd.size())
        optimizer = hvd.DistributedOptimizer(optimizer)

        # The input pipeline, which the tutorial leaves to the reader.  Each rank reads its part.
        d = tf.data.TFRecordDataset(files.train).shard(hvd.size(), hvd.rank())
        d = d.shuffle(2000).repeat().map(parse_digit).batch(BATCH_SIZE)
        input_batch, labels_batch = tf.data.make_one_shot_iterator(d).get_next()

        # Changed: the graph is built once.  The tutorial builds it in "for i in range(num_steps)",
        # so another model for each step.  And without its replica_device_setter: that spreads one
        # model over servers; here each process holds the model and no server exists.
        logits = model_fn(input_batch)
        loss = loss_fn(logits, labels_batch)

        # Changed: with the global step, by which TensorBoard orders what it shows.
        train_op = optimizer.minimize(loss, global_step=tf.train.get_or_create_global_step())

        d = tf.data.TFRecordDataset(files.test).map(parse_digit).batch(test_count)
        test_images, test_labels = tf.data.experimental.get_single_element(d)
        predicted = tf.argmax(model_fn(test_images), axis=-1, output_type=tf.int32)
        accuracy = tf.reduce_mean(tf.cast(tf.equal(predicted, test_labels), tf.float32))

        hooks = [hvd.BroadcastGlobalVariablesHook(0)]
        # Changed: all hooks come before the one session; the tutorial trains in a session without
        # the second hook first, to its end.  The loss is passed, since this one is no tf.losses.
        hooks.append(hvd.TensorBoardHook(tb_dir, save_steps=100, loss=loss))
        # Changed: without it "while not sess.should_stop()" never ends.
        hooks.append(tf.train.StopAtStepHook(last_step=num_steps))
        weights = WeightsDigestHook()
        evaluation = tf.train.FinalOpsHook(accuracy)
        hooks += [weights, evaluation]

        start_s = time.monotonic()
        with tf.train.MonitoredTrainingSession(config=config, hooks=hooks) as sess:
            while not sess.should_stop():
                sess.run(train_op)

    if hvd.rank() == 0:
        print(f"test accuracy: {evaluation.final_ops_values:.4f}")
        print(f"seconds: {time.monotonic() - start_s:.1f}")
    print(f"weights digest: {weights.digest}", flush=True)


def main() -> None:
    """Runs the example on this rank."""
    args = parse_arguments()
    hvd.init()
    tf.logging.set_verbosity(tf.logging.ERROR)
    with contextlib.ExitStack() as stack:
        train(args, args.logdir or stack.enter_context(tempfile.TemporaryDirectory()))


if __name__ == "__main__":
    main()
