"""Parameters as torch modules store them; optimizers depend on their shapes."""

from __future__ import annotations

from math import prod
from typing import NamedTuple


class TorchParameter(NamedTuple):
    """A parameter as the transformers class stores it: `copies` tensors of this shape.

    `stack`: index of the kind of layer, None outside the layers. `embedding`: it belongs to an embedding.
    """

    shape: tuple[int, ...]
    copies: int = 1
    stack: int | None = None
    embedding: bool = False

    @property
    def elements(self) -> int:
        """Number of elements of one tensor."""
        return prod(self.shape)

    @property
    def rows_and_columns(self) -> int:
        """Number of rows plus columns of all its matrices; 0 for a vector."""
        return sum(self.elements // side for side in self.shape[-2:]) if len(self.shape) > 1 else 0

    @property
    def hidden_matrix(self) -> bool:
        """True for a matrix in a layer that is no embedding: torch.optim.Muon is for these parameters."""
        return self.stack is not None and len(self.shape) == 2 and not self.embedding
