"""horovod.spark: not part of this package."""

raise ImportError("horovod.spark is not part of this package; start ranks with horovodrun")
