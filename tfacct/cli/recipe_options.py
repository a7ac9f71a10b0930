"""Options of a training step's recipe. (Annotations are not postponed: that keeps the start short.)"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from tfacct.cli import complete


class RecomputeChoice(StrEnum):
    """What a backward pass runs again."""

    none = "none"
    full = "full"
    attention = "attention"


class AttentionChoice(StrEnum):
    """How transformers runs attention."""

    sdpa = "sdpa"
    eager = "eager"


_STEP = "Training step"
Optimizer = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="As `tfacct train` knows it. Default: adamw.",
        rich_help_panel=_STEP,
        show_default=False,
        autocompletion=complete.optimizer,
    ),
]
RECOMPUTED = "PARTS"
Recompute = Annotated[
    str | None,
    typer.Option(
        metavar=RECOMPUTED,
        help="Activation checkpointing: none, full (every layer), attention, selective[:MODULES]. Default: none.",
        rich_help_panel=_STEP,
        show_default=False,
        autocompletion=complete.recompute,
    ),
]
Attention = Annotated[
    AttentionChoice | None,
    typer.Option(
        help="How transformers runs it. Default: sdpa, or eager where the class has no other.",
        rich_help_panel=_STEP,
        show_default=False,
    ),
]


class LossChoice(StrEnum):
    """How the loss is computed."""

    whole = "whole"
    chunked = "chunked"


Loss = Annotated[
    LossChoice | None,
    typer.Option(
        help="chunked: head and cross entropy of an eighth of the tokens at a time. Default: whole.",
        rich_help_panel=_STEP,
        show_default=False,
    ),
]
Lora = Annotated[
    str | None,
    typer.Option(
        metavar="R[:MODULES]",
        help="LoRA: adapters of rank R, as peft's, on all linear layers or on these modules.",
        rich_help_panel=_STEP,
    ),
]
AdapterDtype = Annotated[
    str | None,
    typer.Option(
        "--adapters",
        metavar="DTYPE",
        help="Dtype of adapters: fp32 (peft's default) or that of the weights.",
        rich_help_panel=_STEP,
        show_default=False,
    ),
]
LoraDropout = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        help="Share of an adapter's input that is dropped. Default: 0.",
        rich_help_panel=_STEP,
        show_default=False,
    ),
]
WeightsDtype = Annotated[
    str | None,
    typer.Option(
        "--weights",
        metavar="FORMAT",
        help="fp32: the pass runs under torch.autocast; nf4: frozen weights in 4 bits, with --lora. Default: --dtype.",
        rich_help_panel=_STEP,
        show_default=False,
    ),
]
MasterWeights = Annotated[
    str | None,
    typer.Option(
        metavar="DTYPE",
        help="fp32: the optimizer updates a copy of 16-bit weights, as in DeepSpeed and Megatron (16 bytes a parameter"
        " with AdamW).",
        show_default=False,
    ),
]
GradientDtype = Annotated[
    str | None,
    typer.Option(
        metavar="DTYPE",
        help="fp32: gradients are accumulated in fp32 next to master weights, as in Megatron (18 bytes a parameter).",
        show_default=False,
    ),
]
Offload = Annotated[
    str | None,
    typer.Option(
        metavar="WHAT",
        help="On the host: optimizer (state and master weights), activations (inputs of recomputed layers).",
        show_default=False,
    ),
]


@dataclass(repr=False, eq=False)
class Kept:
    """What of a recipe changes the bytes that a training step keeps: what is left out is as `train` has it."""

    recompute: Recompute = None
    attention: Attention = None
    weights_dtype: WeightsDtype = None


@dataclass(repr=False, eq=False)
class Trained(Kept):
    """The recipe of a training step, for its bytes."""

    optimizer: Optimizer = None
    loss: Loss = None
    lora: Lora = None
    adapter_dtype: AdapterDtype = None
    lora_dropout: LoraDropout = None


@dataclass(repr=False, eq=False)
class Planned(Trained):
    """The same, and the model states."""

    master_weights: MasterWeights = None
    gradient_dtype: GradientDtype = None
    offload: Offload = None
