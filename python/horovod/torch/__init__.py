"""horovod.torch: not part of this package."""

raise ImportError("horovod.torch is not part of this package; use torch.distributed")
