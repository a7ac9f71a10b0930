"""The torch module of ESM's prediction of contacts."""

from __future__ import annotations

from torch import nn

from tfacct.families import rotary_bert
from tfacct.reference.modules import Unused


class Contacts(nn.Module):
    """Weights that no forward pass runs."""

    def __init__(self, part: rotary_bert.Contacts) -> None:
        super().__init__()
        self.regression = Unused(part.maps, 1, bias=True)
