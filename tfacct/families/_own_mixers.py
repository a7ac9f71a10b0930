"""Mixers of own models in place of attention: Mamba, Mamba-2, gated DeltaNet, gated short convolutions."""

from tfacct.architecture.parts import DeltaNet, Mamba, Mamba2, ShortConvolution
from tfacct.families._own_tables import BlockTable, DeltaNetTable, Mamba2Table, MambaTable
from tfacct.families.fields import divide_exactly


def mixer(hidden: int, block: BlockTable) -> Mamba | Mamba2 | DeltaNet | ShortConvolution:
    """The mixer that a block has in place of attention. Raises ConfigError."""
    if block.mamba is not None:
        return _mamba(hidden, block.mamba)
    if block.mamba2 is not None:
        return _mamba2(hidden, block.mamba2)
    if block.delta_net is not None:
        return _delta_net(hidden, block.delta_net)
    assert block.short_convolution is not None
    return ShortConvolution(hidden=hidden, **block.short_convolution.model_dump())


def _mamba(hidden: int, own: MambaTable) -> Mamba:
    keys = own.model_dump(exclude={"network", "rank"})
    return Mamba(hidden=hidden, rank=-(-hidden // 16) if own.rank is None else own.rank, **keys)


def _mamba2(hidden: int, own: Mamba2Table) -> Mamba2:
    group = divide_exactly(own.heads, own.groups, "mamba2.heads by mamba2.groups")
    return Mamba2(hidden=hidden, group=group, **own.model_dump(exclude={"network", "heads"}))


def _delta_net(hidden: int, own: DeltaNetTable) -> DeltaNet:
    group = divide_exactly(own.heads, own.key_heads, "delta_net.heads by delta_net.key_heads")
    keys = own.model_dump(exclude={"heads", "decay_rank"})
    if own.decay_rank is None:
        return DeltaNet(hidden=hidden, group=group, **keys)
    return DeltaNet(hidden=hidden, group=group, rank=own.decay_rank, gate="sigmoid", **keys)
