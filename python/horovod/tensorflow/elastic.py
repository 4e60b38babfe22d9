"""horovod.tensorflow.elastic: not built yet."""

raise ImportError(
    "horovod.tensorflow.elastic is not built yet; restart the job from a checkpoint instead"
)
