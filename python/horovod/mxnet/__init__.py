"""horovod.mxnet: not part of this package."""

raise ImportError("horovod.mxnet is not part of this package, and MXNet is no longer maintained")
