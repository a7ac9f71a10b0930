"""Options of a mesh of ranks. (Annotations are not postponed: that keeps the start short.)"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer


class AfterHeadChoice(StrEnum):
    """What becomes of logits that ranks divide."""

    divided = "divided"
    gathered = "gathered"
    loss = "loss"


class PlanChoice(StrEnum):
    """Who divides products."""

    torch = "torch"
    megatron = "megatron"


_MESH = "Mesh"
Tp = Annotated[
    int,
    typer.Option(
        metavar="N",
        help="Tensor parallelism: ranks that shard heads, widths and the vocabulary.",
        rich_help_panel=_MESH,
    ),
]
Sp = Annotated[
    bool,
    typer.Option(
        "--sp", help="Sequence parallelism: these ranks shard the residual stream too.", rich_help_panel=_MESH
    ),
]
Fsdp = Annotated[
    int,
    typer.Option(
        metavar="N", help="FSDP: groups of tp ranks, each with a batch, that shard weights.", rich_help_panel=_MESH
    ),
]
TpPlan = Annotated[
    PlanChoice,
    typer.Option(help="Gradients of one tensor: reduced matmul by matmul, or together.", rich_help_panel=_MESH),
]


Ep = Annotated[
    int,
    typer.Option(
        metavar="N", help="Expert parallelism: of these ranks, how many shard the experts.", rich_help_panel=_MESH
    ),
]
Imbalance = Annotated[
    float,
    typer.Option(metavar="X", help="Most tokens that a rank of --ep receives, over the mean.", rich_help_panel=_MESH),
]


Dp = Annotated[
    int,
    typer.Option(
        metavar="N",
        help="Data parallelism: copies of these ranks (DDP; with --fsdp HSDP), each with a batch.",
        rich_help_panel=_MESH,
    ),
]
Zero = Annotated[
    int,
    typer.Option(
        metavar="STAGE",
        help="What --dp shards, as ZeRO: optimizer state (1), gradients too (2), weights too (3: --fsdp).",
        rich_help_panel=_MESH,
        show_default=False,
    ),
]


class ScheduleChoice(StrEnum):
    """Order in which stages take microbatches."""

    gpipe = "gpipe"
    one_forward_one_backward = "1f1b"
    interleaved = "interleaved"
    zero_bubble = "zero-bubble"


class CpMethodChoice(StrEnum):
    """How keys and values reach other ranks' tokens."""

    ring = "ring"
    gather = "gather"


Pp = Annotated[int, typer.Option(metavar="N", help="Pipeline parallelism: stages of layers.", rich_help_panel=_MESH)]
PpSchedule = Annotated[
    ScheduleChoice, typer.Option(help="Order in which stages run micro-batches.", rich_help_panel=_MESH)
]
Microbatches = Annotated[
    int | None,
    typer.Option(
        metavar="M",
        help="Micro-batches of a batch with --pp. Default: one for each sequence in a training step.",
        rich_help_panel=_MESH,
        show_default=False,
    ),
]
PpChunks = Annotated[
    int, typer.Option(metavar="N", help="Stages of each rank, with --schedule interleaved.", rich_help_panel=_MESH)
]
Cp = Annotated[
    int,
    typer.Option(
        metavar="N", help="Context parallelism: ranks that shard the tokens of a sequence.", rich_help_panel=_MESH
    ),
]
CpMethod = Annotated[
    CpMethodChoice, typer.Option(help="How keys and values reach the ranks of --cp.", rich_help_panel=_MESH)
]
Ulysses = Annotated[
    int,
    typer.Option(
        metavar="N", help="Ulysses: ranks that shard tokens, and heads inside attention.", rich_help_panel=_MESH
    ),
]


@dataclass(repr=False, eq=False)
class Ranks:
    """The ranks that divide a model."""

    tp: Tp = 1
    sp: Sp = False
    fsdp: Fsdp = 1
    ep: Ep = 1
    pp: Pp = 1
    cp: Cp = 1


@dataclass(repr=False, eq=False)
class Mesh:
    """The ranks among which a model is divided."""

    tp: Tp = 1
    sp: Sp = False
    fsdp: Fsdp = 1
    tp_plan: TpPlan = PlanChoice.torch
    ep: Ep = 1
    imbalance: Imbalance = 1
    dp: Dp = 1
    zero: Zero = 0
    pp: Pp = 1
    schedule: PpSchedule = ScheduleChoice.one_forward_one_backward
    microbatches: Microbatches = None
    pp_chunks: PpChunks = 1
    cp: Cp = 1
    cp_method: CpMethod = CpMethodChoice.ring
    ulysses: Ulysses = 1
