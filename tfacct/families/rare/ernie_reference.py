"""The reference model's embedding of tasks."""

from __future__ import annotations

from tfacct.reference.positions import Segments


class TaskEmbedding(Segments):
    """Embedding of tasks, added to that of the tokens: all are of the first task."""
