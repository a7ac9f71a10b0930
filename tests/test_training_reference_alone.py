"""Parts of the reference model that run by themselves over shapes, held against torch operator by operator."""

from __future__ import annotations

from typing import Any

import pytest

from tfacct.architecture import parts
from tfacct.reference import over_shapes
from tfacct.reference.over_shapes import DTYPES
from tfacct.shapes import eager
from tfacct.shapes.tensors import counted

DELTA: dict[str, Any] = {
    "hidden": 12,
    "key_heads": 2,
    "group": 3,
    "key_dim": 5,
    "value_dim": 7,
    "kernel": 4,
    "chunk": 8,
}
MAMBA2: dict[str, Any] = {"hidden": 12, "groups": 2, "group": 2, "head_dim": 3, "state": 5, "kernel": 4, "chunk": 8}
MAMBA: dict[str, Any] = {"hidden": 12, "inner": 9, "state": 4, "kernel": 3, "rank": 5}
EVERY: list[parts.Mixer] = [
    parts.DeltaNet(**DELTA),
    parts.DeltaNet(**{**DELTA, "group": 1, "rank": 3, "gate": "sigmoid"}),
    parts.DeltaNet(**{**DELTA, "rank": 3, "floor": -5.0, "whole": True}),
    parts.Mamba2(**MAMBA2),
    parts.Mamba2(**{**MAMBA2, "gated_norm": True, "norm_first": True, "bias": True}),
    parts.Mamba2(**{**MAMBA2, "gated_norm": True, "least_step": 0.1, "factors": (1.0, 2.0, 3.0, 4.0, 5.0)}),
    parts.Mamba(**MAMBA),
    parts.Mamba(**MAMBA, norms="scaled", bias=True, conv_bias=True),
    parts.ShortConvolution(hidden=12, kernel=3, bias=True),
    parts.GatedRecurrence(hidden=12, blocks=2, block_dim=5, before=3, activation="gelu_pytorch_tanh"),
    parts.TimeMix(hidden=12, inner=7),
    parts.ChannelMix(hidden=12, width=7),
    parts.LightningAttention(hidden=12, heads=2, head_dim=5, chunk=8, activation="silu", eps=1e-6),
]
MAKE_NOTHING = (
    *("view", "_unsafe_view", "t", "transpose", "permute", "unsqueeze", "squeeze", "expand", "slice", "select"),
    *("split_with_sizes", "unbind", "detach", "alias", "add_", "copy_", "masked_fill_"),
)


def theirs(part: parts.Mixer, dtype: str, batch: int, tokens: int) -> tuple[list[int], list[int]]:
    """Bytes alive behind every operator of the module that makes a tensor, forwards and backwards."""
    import torch

    from tfacct.reference.alive import Alive
    from tfacct.reference.meta_kernels import compiled
    from tfacct.reference.mixers import module_of
    from tfacct.reference.running import DTYPES

    levels: list[int] = []

    class Log(Alive):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = super().__torch_dispatch__(operator, types, args, kwargs)
            if str(operator).split(".")[1] not in MAKE_NOTHING:
                levels.append(self.now - before)
            return result

    with compiled():
        with torch.device("meta"):
            module = module_of(part)(part).to(DTYPES[dtype])
        leaf = torch.zeros(batch, tokens, part.hidden, device="meta", dtype=DTYPES[dtype]).requires_grad_()
        gradient, log = torch.zeros_like(leaf).detach(), Log()
        for tensor in (*module.parameters(), leaf, gradient):
            log.add(tensor)
        before = log.now
        with log:
            out = module(leaf.view(leaf.shape), None)[0]
            forwards = len(levels)
            torch.autograd.backward(out, gradient)
    return levels[:forwards], levels[forwards:]


def ours(part: parts.Mixer, dtype: str, batch: int, tokens: int) -> tuple[list[int], list[int]]:
    """The same by the module's own code over shapes."""
    levels: list[int] = []

    class Log(eager.Meter):
        def record(self) -> None:
            levels.append(self.now - before)

    meter, shape, each, before = Log(), (batch, tokens, int(part.hidden)), DTYPES[dtype], 0
    with counted(meter):
        made = over_shapes.loader().load("tfacct.reference.mixers").module_of(part)(part).to(each)
        strides = eager.packed(shape)
        leaf = eager.Tensor(eager.Storage(meter, 0), shape, strides, each, eager.Leaf())
        x = eager.noted(leaf.bare(), (leaf,), lambda grads: grads)
        before = meter.now
        levels.clear()
        out = made(x, None)[0]
        del x
        forwards = len(levels)
        eager.backward(meter, out.node, eager.Tensor(eager.Storage(meter, 0), shape, strides, each))
    return levels[:forwards], levels[forwards:]


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("part", EVERY, ids=lambda part: type(part).__name__)
def test_what_is_alive_behind_every_operator(part: parts.Mixer, dtype: str) -> None:
    pytest.importorskip("torch")
    for batch, tokens in ((1, 1), (2, 7), (1, 19)):
        assert ours(part, dtype, batch, tokens) == theirs(part, dtype, batch, tokens), (batch, tokens)


@pytest.mark.parametrize("part", [EVERY[0], EVERY[1], EVERY[3], EVERY[-1]], ids=lambda part: type(part).__name__)
def test_a_long_loop_holds_no_more_at_most(part: parts.Mixer) -> None:
    pytest.importorskip("torch")
    for one, other in zip(ours(part, "bf16", 2, 61), theirs(part, "bf16", 2, 61), strict=True):
        assert max(one) == max(other)
