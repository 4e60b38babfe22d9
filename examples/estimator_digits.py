"""Trains a small transformer on handwritten digits with tf.estimator, on any number of processes.

    horovodrun -np 2 python examples/estimator_digits.py
    python examples/estimator_digits.py                     # the same, alone

Comments that begin with "Horovod:" mark what a program for one process has to change.  Needs
TensorFlow 2.15 or older: later ones have no Estimator.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow loads

import tensorflow.compat.v1 as tf
from digits_data import (
    NUM_CLASSES,
    NUM_LEVELS,
    count_records,
    default_data_dir,
    parse_digit,
    vary_levels,
    write_digits,
)
from transformer import encoder_logits
from weights_digest import WeightsDigestHook

import horovod.tensorflow as hvd
from horovod.tensorflow.compression import Compression


def parse_arguments() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--data_dir", default=default_data_dir(), help="folder of the TFRecords")
    parser.add_argument(
        "--output_dir", help="folder of rank 0's checkpoints; default: one deleted at the end"
    )
    parser.add_argument(
        "--init_checkpoint", help="checkpoints to start from, with commas between; rank 0 reads"
    )
    parser.add_argument("--train_batch_size", type=int, default=32, help="images per rank and step")
    parser.add_argument(
        "--num_train_epochs", type=float, default=20.0, help="passes over the data, all ranks' sum"
    )
    parser.add_argument(
        "--learning_rate", type=float, default=2e-3, help="top rate of one rank; times the ranks"
    )
    parser.add_argument(
        "--warmup_proportion", type=float, default=0.1, help="share of the steps with a rising rate"
    )
    parser.add_argument("--save_checkpoints_steps", type=int, default=400, help="steps between")
    parser.add_argument("--use_fp16", action="store_true", help="send gradients as float16")
    parser.add_argument("--use_xla", action="store_true", help="compile with XLA, on CPUs too")
    parser.add_argument("--seed", type=int, default=1, help="of rank 0; rank r takes seed + r")
    return parser.parse_args()


def input_fn_builder(input_file: str, batch_size: int, is_training: bool) -> Any:
    """Returns the function that makes Estimator's input from a TFRecord file."""

    def input_fn() -> Any:
        d = tf.data.TFRecordDataset(input_file)
        if is_training:
            # Horovod: each rank reads every size-th record, from its own on.  First in the
            # pipeline: after a shuffle the ranks' shares would overlap.
            d = d.shard(hvd.size(), hvd.rank())
            d = d.shuffle(buffer_size=100)
            d = d.repeat()
        return d.map(parse_digit).batch(batch_size).prefetch(2)

    return input_fn


def assignment_map_from_checkpoint(variables: list[Any], init_file: str) -> dict[str, Any]:
    """Returns those `variables`, by name, that the checkpoint holds in the same shape."""
    shapes = dict(tf.train.list_variables(init_file))
    names = {variable.op.name: variable for variable in variables}
    return {name: v for name, v in names.items() if shapes.get(name) == v.shape.as_list()}


def learning_rate_at(step: Any, top_rate: float, num_steps: int, num_warmup_steps: int) -> Any:
    """Builds the rate: from 0 up to `top_rate` at `num_warmup_steps`, and down to 0 at the end."""
    rising = tf.cast(step + 1, tf.float32) / max(1, num_warmup_steps)
    falling = tf.cast(num_steps - step, tf.float32) / max(1, num_steps - num_warmup_steps)
    return top_rate * tf.minimum(rising, falling)


def model_fn_builder(args: argparse.Namespace, num_train_steps: int, num_warmup_steps: int) -> Any:
    """Returns Estimator's model function."""

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        is_training = mode == tf.estimator.ModeKeys.TRAIN
        if is_training:
            features = vary_levels(features)
        logits = encoder_logits(
            features, num_levels=NUM_LEVELS, num_classes=NUM_CLASSES, is_training=is_training
        )
        loss = tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        )
        if not is_training:
            accuracy = tf.metrics.accuracy(labels, tf.argmax(logits, axis=-1))
            return tf.estimator.EstimatorSpec(
                mode, loss=loss, eval_metric_ops={"accuracy": accuracy}
            )

        # Horovod: rank 0 alone reads the weights to start from.  The broadcast below brings them
        # to the others, which then need no such file.
        if args.init_checkpoint and hvd.rank() == 0:
            for init_file in args.init_checkpoint.split(","):
                assignment_map = assignment_map_from_checkpoint(tf.trainable_variables(), init_file)
                tf.train.init_from_checkpoint(init_file, assignment_map)

        # Horovod: a step sees size times as many images, so it may go size times as far.
        learning_rate = args.learning_rate * hvd.size()
        global_step = tf.train.get_or_create_global_step()
        optimizer = tf.train.AdamOptimizer(
            learning_rate_at(global_step, learning_rate, num_train_steps, num_warmup_steps)
        )

        # Horovod: wrap the optimizer, and it averages the gradients over the ranks.
        # sparse_as_dense: the embedding's gradient names the rows that were looked up.  Here a
        # batch looks up most of them, so a dense sum is less to send than all ranks' rows.
        compression = Compression.fp16 if args.use_fp16 else Compression.none
        optimizer = hvd.DistributedOptimizer(
            optimizer, sparse_as_dense=True, compression=compression
        )
        train_op = optimizer.minimize(loss, global_step=global_step)
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    return model_fn


def run_config(args: argparse.Namespace) -> Any:
    """Returns Estimator's configuration for this rank."""
    session_config = tf.ConfigProto()
    # Horovod: one GPU per process, numbered within the host.  Without a GPU these lines do nothing.
    session_config.gpu_options.allow_growth = True
    session_config.allow_soft_placement = True
    session_config.gpu_options.visible_device_list = str(hvd.local_rank())
    if args.use_xla:
        session_config.graph_options.optimizer_options.global_jit_level = tf.OptimizerOptions.ON_1
    # Horovod: rank 0 alone writes checkpoints; all ranks hold the same weights.
    save_checkpoints_steps = args.save_checkpoints_steps if hvd.rank() == 0 else None
    return tf.estimator.RunConfig(
        # Horovod: a seed per rank, or all ranks drop and shuffle alike.  (Estimator's own default
        # is one fixed seed, which also hides a forgotten broadcast: all would start the same.)
        tf_random_seed=args.seed + hvd.rank(),
        save_checkpoints_steps=save_checkpoints_steps,
        save_checkpoints_secs=None,
        keep_checkpoint_every_n_hours=2,
        log_step_count_steps=400,
        session_config=session_config,
    )


def steps_done(model_dir: str) -> int:
    """Returns the step of the newest checkpoint on rank 0, on every rank."""
    checkpoint = tf.train.latest_checkpoint(model_dir)
    mine = int(tf.train.load_variable(checkpoint, "global_step")) if checkpoint else 0
    return int(hvd.broadcast(tf.constant(mine), root_rank=0, name="steps_done"))


def train_and_evaluate(args: argparse.Namespace, model_dir: str) -> None:
    """Trains on all ranks, then evaluates on rank 0."""
    files = write_digits(args.data_dir)
    train_num = count_records(files.train)
    num_train_steps = int(train_num / args.train_batch_size * args.num_train_epochs)
    # Horovod: the ranks share the work.  The warm-up is a share of what is left; taken before
    # the division, it would outlast the training on many ranks.
    num_train_steps = max(1, num_train_steps // hvd.size())
    num_warmup_steps = int(num_train_steps * args.warmup_proportion)

    # Estimator skips training where it finds it done.  Only rank 0 can find that, and the others
    # would wait for it, so all of them ask first.
    if steps_done(model_dir) >= num_train_steps:
        print(
            f"rank {hvd.rank()}: nothing to train: rank 0's folder holds step {num_train_steps} or "
            "a later one already; choose another --output_dir or more --num_train_epochs"
        )
        return

    estimator = tf.estimator.Estimator(
        model_fn=model_fn_builder(args, num_train_steps, num_warmup_steps),
        model_dir=model_dir,
        config=run_config(args),
    )
    weights = WeightsDigestHook()
    start_s = time.monotonic()
    estimator.train(
        input_fn=input_fn_builder(files.train, args.train_batch_size, is_training=True),
        max_steps=num_train_steps,
        # Horovod: rank 0's variables replace the others' before the first step, so all start
        # from the same: fresh, from --init_checkpoint, or restored from --output_dir.
        hooks=[hvd.BroadcastGlobalVariablesHook(0), weights],
    )
    seconds = time.monotonic() - start_s

    # Rank 0 alone has a checkpoint to evaluate, and one answer is enough.  Nothing in the
    # evaluation waits for another rank, so the others may be gone by then.
    if hvd.rank() == 0:
        result = estimator.evaluate(
            input_fn_builder(files.test, args.train_batch_size, is_training=False)
        )
        print(f"test accuracy: {result['accuracy']:.4f}")
        print(f"seconds: {seconds:.1f}")
    print(f"weights digest: {weights.digest}", flush=True)


def main() -> None:
    """Runs the example on this rank."""
    args = parse_arguments()
    if args.use_xla:
        # Without it the setting in run_config is for GPUs alone.  TensorFlow reads it at the
        # first op, so before hvd.init.
        os.environ["TF_XLA_FLAGS"] = os.environ.get("TF_XLA_FLAGS", "") + " --tf_xla_cpu_global_jit"
    # Horovod: once, before anything asks for the rank.  Do not go on when it fails: each process
    # would then train a model of its own.
    hvd.init()
    tf.logging.set_verbosity(tf.logging.ERROR)
    tf.logging.info(f"Total workers: {hvd.size()}, local workers: {hvd.local_size()}")
    tf.logging.info(f"Global rank: {hvd.rank()}, local rank: {hvd.local_rank()}")

    with contextlib.ExitStack() as stack:
        # Horovod: rank 0 alone gets the folder that is kept.  Estimator writes a graph and events
        # into its folder on every rank, and those of several ranks must not mix.
        if args.output_dir and hvd.rank() == 0:
            model_dir = args.output_dir
        else:
            model_dir = stack.enter_context(tempfile.TemporaryDirectory(prefix="digits-"))
        train_and_evaluate(args, model_dir)


if __name__ == "__main__":
    main()
