"""Cost of a step: FLOPs, bytes read and bytes written."""

from __future__ import annotations

from tfacct.base.record import record
from tfacct.ledger.einsum import Size, ratio


@record
class Cost:
    """FLOPs, bytes read and bytes written of one or several matmuls.

    >>> Cost(6, read=2, written=1) + Cost(4, read=1, written=1)
    Cost(flops=10, read=3, written=2)
    """

    flops: Size = 0
    read: Size = 0
    written: Size = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.flops + other.flops, self.read + other.read, self.written + other.written)

    @property
    def moved(self) -> Size:
        """Bytes read and written."""
        return self.read + self.written

    @property
    def intensity(self) -> Size:
        """FLOPs per byte moved."""
        return ratio(self.flops, self.moved)
