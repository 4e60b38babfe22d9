"""horovod.tensorflow.keras: not built yet."""

raise ImportError(
    "horovod.tensorflow.keras is not built yet; "
    "horovod.tensorflow works with tf.compat.v1 optimizers and tapes"
)
