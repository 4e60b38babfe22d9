"""The exceptions that programs catch.

RuntimeError
  HorovodInternalError           a rank was lost or the job was aborted
  HostsUpdatedInterrupt          elastic: the set of hosts has changed
ImportError
  HorovodVersionMismatchError    the package and the framework do not fit
"""

from __future__ import annotations

__all__ = ["HorovodInternalError", "HorovodVersionMismatchError", "HostsUpdatedInterrupt"]


class HorovodInternalError(RuntimeError):
    """A collective could not complete: a rank was lost, the job aborted, or the runtime ended.

    Elastic training catches it and starts a new generation.
    """


class HostsUpdatedInterrupt(RuntimeError):
    """Hosts were added or removed, and training should go on with the new ones.

    Args:
      skip_sync: whether the state of the ranks that stay is the same already.
    """

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__("the set of hosts has changed")
        self.skip_sync = skip_sync


class HorovodVersionMismatchError(ImportError):
    """The framework that is installed is not the one that the package was built for.

    Args:
      name: the framework.
      version: the one that is installed.
      installed_version: the one that the package was built for.
    """

    def __init__(self, name: str, version: str, installed_version: str) -> None:
        super().__init__(
            f"horovod was built for {name} {installed_version}, but {name} {version} is installed; "
            f"run: make build TF={version}"
        )
        self.name = name
        self.version = version
        self.installed_version = installed_version
