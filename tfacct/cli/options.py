"""The options that several commands share: the same name, the same meaning everywhere.

A command takes them in groups: a parameter of a group's type is all the options in it. (Annotations are not postponed:
they are what typer reads. Nor do groups have methods of dataclasses that nobody calls: each takes a millisecond of
every start.)
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from tfacct.base import units
from tfacct.cli import complete
from tfacct.cli.mesh_options import AfterHeadChoice as AfterHeadChoice
from tfacct.cli.mesh_options import Dp as Dp
from tfacct.cli.mesh_options import Ep as Ep
from tfacct.cli.mesh_options import Fsdp as Fsdp
from tfacct.cli.mesh_options import Imbalance as Imbalance
from tfacct.cli.mesh_options import Mesh as Mesh
from tfacct.cli.mesh_options import PlanChoice as PlanChoice
from tfacct.cli.mesh_options import Pp as Pp
from tfacct.cli.mesh_options import Ranks as Ranks
from tfacct.cli.mesh_options import Sp as Sp
from tfacct.cli.mesh_options import Tp as Tp
from tfacct.cli.mesh_options import TpPlan as TpPlan
from tfacct.cli.mesh_options import Zero as Zero
from tfacct.cli.recipe_options import RECOMPUTED as RECOMPUTED
from tfacct.cli.recipe_options import AttentionChoice as AttentionChoice
from tfacct.cli.recipe_options import GradientDtype as GradientDtype
from tfacct.cli.recipe_options import Kept as Kept
from tfacct.cli.recipe_options import LossChoice as LossChoice
from tfacct.cli.recipe_options import MasterWeights as MasterWeights
from tfacct.cli.recipe_options import Offload as Offload
from tfacct.cli.recipe_options import Planned as Planned
from tfacct.cli.recipe_options import RecomputeChoice as RecomputeChoice
from tfacct.cli.recipe_options import Trained as Trained


class LogitsChoice(StrEnum):
    """Positions that get logits."""

    all = "all"
    last = "last"


class ByChoice(StrEnum):
    """Rows of a table."""

    line = "line"
    part = "part"
    block = "block"


class OfChoice(StrEnum):
    """Quantities that a formula counts."""

    flops = "flops"
    params = "params"
    kv = "kv"
    train = "train"
    saved = "saved"


class ProofChoice(StrEnum):
    """Methods of proof."""

    symbols = "symbols"
    grid = "grid"


class PartChoice(StrEnum):
    """Which models of several."""

    text = "text"
    vision = "vision"
    audio = "audio"
    both = "both"


Models = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="MODEL",
        help="Preset, path to a config.json or a TOML, hub id, or - for stdin. None: every preset.",
        autocompletion=complete.model,
        show_default=False,
    ),
]
OneModel = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="Preset, path to a config.json or a TOML, hub id, or - for stdin.",
        autocompletion=complete.model,
    ),
]

PerhapsModel = Annotated[
    str | None,
    typer.Argument(
        metavar="[MODEL]",
        help="Preset, path to a config.json or a TOML, hub id, or - for stdin.",
        autocompletion=complete.model,
        show_default=False,
    ),
]

FamilyOrModel = Annotated[
    str,
    typer.Argument(
        metavar="FAMILY|MODEL",
        help="Family, preset, path to a config.json, hub id, or - for stdin.",
        autocompletion=complete.family_or_model,
        show_default=False,
    ),
]

_WORKLOAD = "Workload"
Ctx = Annotated[
    str | None,
    typer.Option(
        metavar="S",
        help="Context at the end of the step, new tokens included; 16k is 16,384, 1e6 a million. Default: the model's"
        " longest.",
        rich_help_panel=_WORKLOAD,
        show_default=False,
    ),
]
Tokens = Annotated[
    str | None,
    typer.Option(metavar="T", help="New tokens, out of the context. Default: all.", rich_help_panel=_WORKLOAD),
]
Decode = Annotated[
    bool, typer.Option("--decode", help="One new token: short for --tokens 1.", rich_help_panel=_WORKLOAD)
]
Source = Annotated[
    str | None,
    typer.Option(
        metavar="J",
        help="Source tokens that an encoder reads for a decoder. Default: the model's longest.",
        rich_help_panel=_WORKLOAD,
        show_default=False,
    ),
]
Batch = Annotated[str, typer.Option(metavar="B", help="Sequences.", rich_help_panel=_WORKLOAD)]

Logits = Annotated[LogitsChoice, typer.Option(help="Positions whose logits are computed.")]
Train = Annotated[bool, typer.Option("--train", help="A training step: forward and backward.")]
Masked = Annotated[bool, typer.Option("--masked", help="Count only the pairs that the causal mask keeps.")]
Dtype = Annotated[
    str | None,
    typer.Option(
        metavar="DTYPE",
        help=f"How weights are stored: {', '.join(units.DTYPES)}. Default: as published if quantized, else bf16.",
        autocompletion=complete.dtype,
    ),
]
KvDtype = Annotated[
    str | None,
    typer.Option(
        metavar="DTYPE",
        help="How the KV cache is stored. Default: as --dtype; bf16 below 16 bits.",
        autocompletion=complete.kv_dtype,
    ),
]

Generate = Annotated[
    str | None,
    typer.Option(
        metavar="N",
        help="A whole request: a prompt of --ctx tokens, then N new ones, with logits for the last position only.",
        rich_help_panel=_WORKLOAD,
        show_default=False,
    ),
]
Bytes = Annotated[
    bool, typer.Option("--bytes", help="Bytes that each product reads and writes, and its FLOPs per byte.")
]
BytesDtype = Annotated[
    str | None,
    typer.Option(
        metavar="DTYPE",
        help="How weights are stored, for --bytes. Default: as published if quantized, else bf16.",
        show_default=False,
        autocompletion=complete.dtype,
    ),
]

_CONFIG = "Which models"
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="Set a field of the config, checked as in a file. Repeatable.",
        rich_help_panel=_CONFIG,
        show_default=False,
        autocompletion=complete.assignment,
    ),
]
Family = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Only presets of this family.",
        rich_help_panel=_CONFIG,
        show_default=False,
        autocompletion=complete.family,
    ),
]
MaxParams = Annotated[
    str | None,
    typer.Option(
        metavar="N",
        help="Only presets with at most this many parameters: 8B, 500M.",
        rich_help_panel=_CONFIG,
        show_default=False,
    ),
]

Part = Annotated[
    PartChoice | None,
    typer.Option(
        help="Of a model of several models: the language model (default), the encoder of its images or audio, or both"
        " and their sum.",
        rich_help_panel=_CONFIG,
        show_default=False,
    ),
]

_OUTPUT = "Output"
Explain = Annotated[
    bool, typer.Option("--explain", help="Derive the total step by step, to check by hand.", rich_help_panel=_OUTPUT)
]
Latex = Annotated[
    bool, typer.Option("--latex", help="The derivation as an align* environment.", rich_help_panel=_OUTPUT)
]
Json = Annotated[bool, typer.Option("--json", help="Exact integers, stable keys.", rich_help_panel=_OUTPUT)]
Csv = Annotated[bool, typer.Option("--csv", help="The rows, raw numbers.", rich_help_panel=_OUTPUT)]
Markdown = Annotated[bool, typer.Option("--markdown", help="The table in Markdown.", rich_help_panel=_OUTPUT)]
Plot = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Also draw a picture: FILE.png, .svg or .pdf.", rich_help_panel=_OUTPUT),
]
Html = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Also write the report as a page: FILE.html.", rich_help_panel=_OUTPUT),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite a file that is there.", rich_help_panel=_OUTPUT)]
Print = Annotated[
    bool,
    typer.Option("--print", help="Greys and hatches, for black-and-white print.", rich_help_panel=_OUTPUT),
]
Dark = Annotated[bool, typer.Option("--dark", help="A picture on a dark background.", rich_help_panel=_OUTPUT)]
Digits = Annotated[bool, typer.Option("--digits", help="Every digit in the table.", rich_help_panel=_OUTPUT)]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose", "-v", help="Explain in full what was counted, and what was not.", rich_help_panel=_OUTPUT
    ),
]


@dataclass(repr=False, eq=False)
class Presets:
    """The presets that pass the filters."""

    sets: Sets = None
    family: Family = None
    max_params: MaxParams = None


@dataclass(repr=False, eq=False)
class Which(Presets):
    """The models: those named, or the presets that pass the filters."""

    models: Models = None
    part: Part = None


@dataclass(repr=False, eq=False)
class One:
    """The model, of a command that takes one."""

    model: OneModel
    sets: Sets = None


@dataclass(repr=False, eq=False)
class OneOrNone:
    """The model, of a command that does something without one too."""

    model: PerhapsModel = None
    sets: Sets = None


@dataclass(repr=False, eq=False)
class Step:
    """The step: how many tokens, new and old, of how many sequences."""

    ctx: Ctx = None
    tokens: Tokens = None
    decode: Decode = False
    batch: Batch = "1"
    source: Source = None


@dataclass(repr=False, eq=False)
class Whole:
    """Whole sequences: the context is what counts, not how many of its tokens are new."""

    ctx: Ctx = None
    batch: Batch = "1"
    source: Source = None


@dataclass(repr=False, eq=False)
class Usable:
    """Memory of a device that a model may take: use × memory − reserve."""

    use: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Share of each device's memory that may be used. Default: 0.9 to serve, 1 to train or of a --fit in"
            " bytes.",
            show_default=False,
        ),
    ] = None
    reserve: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Memory of each device that is not the model's: CUDA context, NCCL. Default: 2GB; 0 of a --fit in"
            " bytes.",
            show_default=False,
        ),
    ] = None


@dataclass(repr=False, eq=False)
class Counted:
    """Ways to count a metric."""

    logits: Logits = LogitsChoice.all
    train: Train = False
    masked: Masked = False
    dtype: Dtype = None
    kv_dtype: KvDtype = None


@dataclass(repr=False, eq=False)
class Picture:
    """A picture beside the table."""

    plot: Plot = None
    printed: Print = False
    dark: Dark = False


@dataclass(repr=False, eq=False)
class Sweep:
    """A sweep of the machine in place of a model's run."""

    calibrate: Annotated[
        bool,
        typer.Option("--calibrate", help="Sweep the machine, and write a device for `tfacct time --on`. No MODEL."),
    ] = False
    file: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The device's file, FILE.toml. Default: cpu.toml, or the device's, among your own.",
            show_default=False,
        ),
    ] = None


@dataclass(repr=False, eq=False)
class Form:
    """The form in which a report is printed."""

    as_json: Json = False
    as_csv: Csv = False
    as_markdown: Markdown = False
    html: Html = None
    force: Force = False


@dataclass(repr=False, eq=False)
class Output(Form):
    """A form, and how much of each number a table shows."""

    digits: Digits = False
    verbose: Verbose = False


@dataclass(repr=False, eq=False)
class Explained:
    """The derivation in place of the table."""

    explain: Explain = False
    as_latex: Latex = False
