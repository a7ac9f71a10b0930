"""Experts and latent attention with sequence parallelism, as in torchtitan (`apply_moe_ep_tp`, and the plan of its
DeepSeek-V3). MoE modules of a class run between an all-gather of the residual stream and a reduce-scatter of their
sums. With expert parallelism, they run on the tokens of a rank. Each rank has the full latents of all tokens.

transformers has no plan for the two together: the modules are those of the class, and the collectives those of DTensor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import cat, nn
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle
from torch.nn.utils.stateless import _reparametrize_module

COLUMNS, ROWS = ("gate_up_proj", "gate_proj", "up_proj"), ("down_proj",)
BANK = ("gate_up_proj", "down_proj")


def mixes(module: Any) -> bool:
    """True for an MoE module of a class."""
    return isinstance(getattr(module, "experts", None), nn.Module)


def plan_of(model: Any, *, expert_parallel: bool) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The plan for MoE modules and latent attention, and the name prefixes of the MoE modules; with `expert_parallel`,
    it does not shard experts."""
    mixtures = {name: module for name, module in model.named_modules() if mixes(module)}
    plan = latent_plan(model)
    if not expert_parallel:
        return {**plan, **{name: Between() for name in mixtures}}, tuple(mixtures)
    for name, mixture in mixtures.items():
        for leaf, module in mixture.named_children():
            if leaf != "experts":
                plan[f"{name}.{leaf}"] = Between() if hasattr(module, "down_proj") else Replicated()
    return plan, tuple(mixtures)


QUERIES, KEYS = ("q_a_proj", "q_b_proj"), ("kv_a_proj_with_mqa", "kv_b_proj")
"""Projections to a latent and to the heads."""


def latent_plan(model: Any) -> dict[str, Any]:
    """The plan for latent attention's matmuls on a gathered residual stream: projections to latents and their norms are
    replicated, projections to heads are column-parallel."""
    plan: dict[str, Any] = {}
    for name, _ in model.named_modules():
        owner, _, leaf = name.rpartition(".")
        if leaf in (QUERIES[0], KEYS[0]):
            plan[name] = ToLatent(model.get_submodule(owner).qk_rope_head_dim if leaf == KEYS[0] else 0)
        elif leaf in (QUERIES[1], KEYS[1]):
            plan[name] = ColwiseParallel()
    return plan


class ToLatent(ParallelStyle):
    """A projection to a latent, which each rank computes for all tokens. All heads read its last `rope_dim` elements
    directly, so their gradient on each rank is a partial sum."""

    def __init__(self, rope_dim: int) -> None:
        self.rope_dim = rope_dim

    def _apply(self, module: nn.Module, device_mesh: Any) -> nn.Module:
        forward: Callable[..., Any] = module.forward

        def run(hidden: Any) -> Any:
            made = forward(hidden.to_local())
            if not self.rope_dim:
                return made
            latent, rope = made.split([made.shape[-1] - self.rope_dim, self.rope_dim], dim=-1)
            replicated = DTensor.from_local(rope, device_mesh, [Replicate()], run_check=False)
            return cat((latent, replicated.to_local(grad_placements=[Partial()])), dim=-1)

        module.forward = run
        return module


class Between(ParallelStyle):
    """An MoE module or an MLP with sharded widths: it reads the gathered residual stream once, and the output of each
    rank is a partial sum, which is reduce-scattered. Inside, nothing is sent: gradients are also partial sums."""

    def _apply(self, module: nn.Module, device_mesh: Any) -> nn.Module:
        for name, weight in [*module.named_parameters()]:
            _put(module, name, distribute_tensor(weight, device_mesh, [_placed(name, weight)], src_data_rank=None))
        forward: Callable[..., Any] = module.forward

        def run(hidden: Any, *args: Any, **named: Any) -> Any:
            part = Shard(hidden.ndim - 2)  # some classes concatenate sequences
            stream = DTensor.from_local(hidden, device_mesh, [part], run_check=False)
            gathered = stream.redistribute(placements=[Replicate()]).to_local(grad_placements=[Partial()])
            with _reparametrize_module(module, _shards_of(module)):
                made = forward(gathered, *args, **named)
            gathered = DTensor.from_local(made, device_mesh, [Partial()], run_check=False)
            return gathered.redistribute(placements=[part]).to_local()

        module.forward = run
        return module


class Replicated(ParallelStyle):
    """A replicated module that each rank runs on its own tokens: the gradients of its weights are partial sums."""

    def _apply(self, module: nn.Module, device_mesh: Any) -> nn.Module:
        for name, weight in [*module.named_parameters()]:
            _put(module, name, distribute_tensor(weight, device_mesh, [Replicate()], src_data_rank=None))
        forward: Callable[..., Any] = module.forward

        def run(*args: Any, **named: Any) -> Any:
            with _reparametrize_module(module, _shards_of(module)):
                return forward(*args, **named)

        module.forward = run
        return module


def _shards_of(module: nn.Module) -> dict[str, Any]:
    """A rank's shards of a module's weights; gradients of replicated weights are partial sums."""
    found = {}
    for name, weight in module.named_parameters():
        assert isinstance(weight, DTensor)
        placed = [Partial() if each.is_replicate() else each for each in weight.placements]
        found[name] = weight.to_local(grad_placements=placed)
    return found


def _placed(name: str, weight: Any) -> Placement:
    """The placement of an MoE weight: an expert is sharded by width, a router is replicated."""
    module, _, leaf = name.rpartition(".")
    which = leaf if leaf in BANK else module.rpartition(".")[2]
    if which in COLUMNS:
        return Shard(weight.ndim - 2)
    return Shard(weight.ndim - 1) if which in ROWS else Replicate()


def _put(module: nn.Module, name: str, weight: Any) -> None:
    owner, _, leaf = name.rpartition(".")
    module.get_submodule(owner).register_parameter(leaf, nn.Parameter(weight))
