"""horovodrun: starts the ranks of a job, brings them together, and ends them together.

Nothing here imports TensorFlow or loads a shared object.
"""

from __future__ import annotations

__all__: list[str] = []
