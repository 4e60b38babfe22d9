"""Trains a small convolutional network on handwritten digits with a compat.v1 Session.

    horovodrun -np 2 python examples/session_digits.py           # MonitoredTrainingSession
    horovodrun -np 2 python examples/session_digits.py --plain   # a plain Session
    python examples/session_digits.py                            # the same, alone

Comments that begin with "Horovod:" mark what a program for one process has to change.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow loads

import tensorflow.compat.v1 as tf
from digits_data import (
    NUM_CLASSES,
    NUM_LEVELS,
    SIDE_PIXELS,
    DigitsFiles,
    count_records,
    default_data_dir,
    parse_digit,
    vary_levels,
    write_digits,
)
from weights_digest import WeightsDigestHook, weights_digest

import horovod.tensorflow as hvd


class Model(NamedTuple):
    """The parts of the graph that a session runs."""

    train_op: Any
    accuracy: Any  # float32 [], over all test images


class Result(NamedTuple):
    """What a training ends with."""

    accuracy: float | None  # over the test images; None on ranks that did not evaluate
    digest: str  # of the trained weights


def parse_arguments() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--data_dir", default=default_data_dir(), help="folder of the TFRecords")
    parser.add_argument("--plain", action="store_true", help="use a plain Session, without hooks")
    parser.add_argument("--batch_size", type=int, default=32, help="images per rank and step")
    parser.add_argument(
        "--epochs", type=float, default=40.0, help="passes over the data, all ranks' sum"
    )
    parser.add_argument(
        "--learning_rate", type=float, default=0.1, help="rate of one rank; times the ranks"
    )
    parser.add_argument("--seed", type=int, default=1, help="of rank 0; rank r takes seed + r")
    return parser.parse_args()


def training_batch(path: str, batch_size: int) -> tuple[Any, Any]:
    """Returns the next images and labels of this rank's share, without end."""
    d = tf.data.TFRecordDataset(path)
    # Horovod: each rank reads every size-th record, from its own on.
    d = d.shard(hvd.size(), hvd.rank()).shuffle(2000).repeat().map(parse_digit)
    iterator = tf.data.make_one_shot_iterator(d.batch(batch_size).prefetch(2))
    images, labels = iterator.get_next()
    return images, labels


def all_images(path: str, count: int) -> tuple[Any, Any]:
    """Returns the `count` images and labels of a file, anew each time they are run."""
    d = tf.data.TFRecordDataset(path).map(parse_digit)
    images, labels = tf.data.experimental.get_single_element(d.batch(count))
    return images, labels


def logits_of(images: Any) -> Any:
    """Builds the network: int32 images [n, 8, 8] to float32 logits [n, 10]."""
    levels = tf.cast(images, tf.float32) / (NUM_LEVELS - 1)
    hidden = tf.reshape(levels, [-1, SIDE_PIXELS, SIDE_PIXELS, 1])
    for layer, (channels, stride) in enumerate([(16, 1), (32, 2)]):
        with tf.variable_scope(f"convolution_{layer}"):
            kernel = tf.get_variable("kernel", [3, 3, hidden.shape[-1], channels])
            bias = tf.get_variable("bias", [channels], initializer=tf.zeros_initializer())
            hidden = tf.nn.conv2d(hidden, kernel, strides=stride, padding="SAME")
            hidden = tf.nn.relu(hidden + bias)
    with tf.variable_scope("classifier"):
        flat = tf.reshape(hidden, [-1, hidden.shape[1:].num_elements()])
        kernel = tf.get_variable("kernel", [flat.shape[-1], NUM_CLASSES])
        bias = tf.get_variable("bias", [NUM_CLASSES], initializer=tf.zeros_initializer())
        return tf.matmul(flat, kernel) + bias


def build_model(args: argparse.Namespace, files: DigitsFiles, test_count: int) -> Model:
    """Builds the input, the network, the loss and the training step in the default graph."""
    images, labels = training_batch(files.train, args.batch_size)
    test_images, test_labels = all_images(files.test, test_count)
    with tf.variable_scope("digits"):
        logits = logits_of(vary_levels(images))
    with tf.variable_scope("digits", reuse=True):
        test_logits = logits_of(test_images)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    predicted = tf.argmax(test_logits, axis=-1, output_type=tf.int32)
    accuracy = tf.reduce_mean(tf.cast(tf.equal(predicted, test_labels), tf.float32))

    # Horovod: a step sees size times as many images, so it may go size times as far.
    optimizer = tf.train.GradientDescentOptimizer(args.learning_rate * hvd.size())
    # Horovod: wrap the optimizer, and its gradients are averages over the ranks.  A program that
    # calls compute_gradients and apply_gradients itself gets averages too: it must not hand them
    # to hvd.allreduce again.
    optimizer = hvd.DistributedOptimizer(optimizer)
    # Horovod: nothing about devices here.  Each process has one GPU or none, so a
    # replica_device_setter or tf.device("/gpu:1") has no place in the program any more.
    train_op = optimizer.minimize(
        tf.reduce_mean(losses), global_step=tf.train.get_or_create_global_step()
    )
    return Model(train_op=train_op, accuracy=accuracy)


def session_config() -> Any:
    """Returns the session's configuration for this rank."""
    config = tf.ConfigProto()
    # Horovod: one GPU per process, numbered within the host.  Without a GPU it does nothing.
    config.gpu_options.visible_device_list = str(hvd.local_rank())
    return config


def train_monitored(model: Model, num_steps: int) -> Result:
    """Trains with a MonitoredTrainingSession, which does all the extra work in hooks."""
    weights = WeightsDigestHook()
    evaluation = tf.train.FinalOpsHook(model.accuracy)
    hooks = [
        # Horovod: rank 0's variables replace the others' before the first step.
        hvd.BroadcastGlobalVariablesHook(0),
        tf.train.StopAtStepHook(last_step=num_steps),
        weights,
    ]
    # Horovod: what is wanted once is a hook of rank 0 alone, and must hold no collective.  The
    # same goes for checkpoints: pass checkpoint_dir on rank 0, and None on the others.
    if hvd.rank() == 0:
        hooks.append(evaluation)
    with tf.train.MonitoredTrainingSession(config=session_config(), hooks=hooks) as sess:
        while not sess.should_stop():
            sess.run(model.train_op)
    return Result(accuracy=evaluation.final_ops_values, digest=weights.digest)


def train_plain(model: Model, num_steps: int) -> Result:
    """Trains with a plain Session, step by step."""
    with tf.Session(config=session_config()) as sess:
        # After minimize(): an optimizer with slots has variables of its own.
        sess.run(tf.global_variables_initializer())
        # Horovod: rank 0's variables replace the others'.  EVERY rank runs this.  Tutorials show
        # it under "if rank == 0", which cannot work: a broadcast is a collective, so rank 0 would
        # wait for the others to receive, and they would train on from values of their own.
        sess.run(hvd.broadcast_global_variables(0))
        for _ in range(num_steps):
            sess.run(model.train_op)
        accuracy = sess.run(model.accuracy) if hvd.rank() == 0 else None
        weights = sess.run({variable.name: variable for variable in tf.trainable_variables()})
    return Result(accuracy=accuracy, digest=weights_digest(weights))


def main() -> None:
    """Runs the example on this rank."""
    args = parse_arguments()
    # Horovod: once, before anything asks for the rank.
    hvd.init()
    tf.logging.set_verbosity(tf.logging.ERROR)

    files = write_digits(args.data_dir)
    train_count, test_count = count_records(files.train), count_records(files.test)
    # Horovod: the ranks share the work.
    num_steps = max(1, int(train_count / args.batch_size * args.epochs) // hvd.size())

    with tf.Graph().as_default():
        # Horovod: a seed per rank, or all ranks shuffle alike.
        tf.set_random_seed(args.seed + hvd.rank())
        model = build_model(args, files, test_count)
        start_s = time.monotonic()
        train = train_plain if args.plain else train_monitored
        result = train(model, num_steps)
        seconds = time.monotonic() - start_s

    # Horovod: one rank reports what is the same on all.
    if hvd.rank() == 0:
        print(f"test accuracy: {result.accuracy:.4f}")
        print(f"seconds: {seconds:.1f}")
    print(f"weights digest: {result.digest}", flush=True)


if __name__ == "__main__":
    main()
