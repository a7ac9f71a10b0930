"""The reference model's task embedding."""

from __future__ import annotations

from tfacct.reference.positions import Segments


class TaskEmbedding(Segments):
    """Task embedding, added to the token embedding: all tokens have the first task."""
