"""Every option: its type, metavar and help. The command line, Python's methods and the schema are derived from them.

A group of options is a TypedDict that a command takes as `**options: Unpack[Group]`. Annotations are not postponed,
because signatures are read at run time.
"""

import re
from collections.abc import Callable, Collection, Mapping
from functools import cache
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypedDict, get_args, get_origin

from tfacct.base import units
from tfacct.base.errors import UsageError, cut
from tfacct.base.spelling import option, shell_option
from tfacct.ledger.workload import Logits, Request

if TYPE_CHECKING:
    from tfacct.loading.memory_limit import MemoryLimit
    from tfacct.parallel.mesh import Mesh
    from tfacct.reports.metrics import Counting
    from tfacct.training.recipe import Recipe


class Option(NamedTuple):
    """Metadata of an option. The short help shows only the first sentence of `help`.

    `complete`: the function in cli/complete.py for its values. `default`: the default of an option in a group.
    `argument`: positional. `advanced`: only in --help-all.
    """

    help: str
    metavar: str | None = None
    group: str | None = None
    default: Any = None
    complete: str = ""
    argument: bool = False
    advanced: bool = False


def of(annotation: Any) -> Option:
    """The metadata in an annotation."""
    if get_origin(annotation) is Annotated:
        return next(one for one in annotation.__metadata__ if isinstance(one, Option))
    raise TypeError(f"no option: {annotation}")


STEP, DTYPES, WHERE, LAYOUT, RECIPE = "Step", "Dtypes", "Where", "Layout", "Recipe"
MODELS, OUTPUT = "Models", "Output"
GROUPS = (STEP, DTYPES, WHERE, LAYOUT, RECIPE, MODELS, OUTPUT)
"""Groups of shared options, in the order of the help."""
_RANKS: dict[str, Any] = {"metavar": "N", "group": LAYOUT, "default": 1}

Size = int | str
"""A whole number, or a text such as "8k"."""
Train = Annotated[bool, Option("A training step: forward and backward.", default=False)]
Masked = Annotated[bool, Option("Only visible query–key pairs (causal, window).", default=False, advanced=True)]
LogitsOf = Annotated[Logits, Option("Positions whose logits are computed.", default="all", advanced=True)]
Dtype = Annotated[
    str | None,
    Option(
        f"Format of the weights. One of {', '.join(units.DTYPES)}. Default: as published if quantized, else bf16.",
        "DTYPE",
        DTYPES,
        complete="dtype",
    ),
]
KvDtype = Annotated[
    str | None,
    Option(
        "Dtype of the KV cache. Default: as --dtype, or bf16 if --dtype is below 16 bits.",
        "DTYPE",
        DTYPES,
        complete="kv_dtype",
    ),
]
StepDtype = Annotated[
    str | None, Option("Dtype of the training step. Default: bf16.", "DTYPE", DTYPES, complete="kv_dtype")
]
Recompute = Annotated[
    str | None,
    Option(
        "Activation checkpointing. full: recompute whole layers; attention: attention modules; selective: Megatron's"
        " core_attn (scores to values); selective:mlp,layernorm: these Megatron modules; selective:op: as in"
        " torchtitan, recompute all but the results of sdpa and of every second matmul. Default: none.",
        "PARTS",
        RECIPE,
        complete="recompute",
    ),
]
Attention = Annotated[
    Literal["sdpa", "eager"] | None,
    Option(
        "Attention implementation of transformers. Default: sdpa, or eager if the class has nothing else.", None, RECIPE
    ),
]
WeightsDtype = Annotated[
    str | None,
    Option("fp32: fp32 weights under autocast; nf4: frozen 4-bit weights (QLoRA). Default: --dtype.", "FORMAT", RECIPE),
]
Sets = Annotated[
    list[str] | None,
    Option("Change config fields: n_layer=24,n_embd=1536. Repeatable.", "FIELD=VALUE", MODELS, complete="assignment"),
]
Limit = Annotated[int | None, Option("At most N rows; 0: all.", "N")]


Source = Annotated[
    Size | None, Option("Source tokens of an encoder. Default: the model's longest.", "J", STEP, advanced=True)
]
Tokens = Annotated[Size | None, Option("How many tokens of the context are new. Default: all.", "T", STEP)]
Decode = Annotated[bool, Option("A decode step: same as --tokens 1.", None, STEP, default=False)]


class Lengths(TypedDict, total=False):
    """Lengths of whole sequences. Sizes are numbers, or text such as `"8k"`."""

    ctx: Annotated[
        Size | None,
        Option("Context in tokens (cached and new); 16k is 16,384. Default: the model's longest.", "S", STEP),
    ]
    source: Source


class Sequences(Lengths, total=False):
    """A workload of whole sequences."""

    batch: Annotated[Size, Option("Batch size in sequences. Default: 1.", "B", STEP, default=1)]


class NewTokens(TypedDict, total=False):
    """The number of new tokens of a sequence."""

    tokens: Tokens
    decode: Decode


class Step(Sequences, NewTokens, total=False):
    """A workload with the number of new tokens."""


class Usable(TypedDict, total=False):
    """The usable memory of a device: use × memory − reserve."""

    use: Annotated[
        float | None, Option("Usable share of device memory. Default: 0.9 to serve, 1 to train.", "SHARE", WHERE)
    ]
    reserve: Annotated[
        Size | None,
        Option(
            "Memory reserved per device for CUDA and NCCL. Default: 2GB, or 0 if --on is a bare size.", "SIZE", WHERE
        ),
    ]


class Deployed(Usable, total=False):
    """How a model is served: formats of its weights and its cache, and usable memory."""

    dtype: Dtype
    kv_dtype: KvDtype


Engine = Annotated[
    Literal["vllm", "sglang", "trtllm"] | None,
    Option("Size the KV cache as this engine does. Default: by --use and --reserve.", None, WHERE),
]


class Where(Usable, total=False):
    """The devices."""

    on: Annotated[
        Size | None,
        Option(
            "Devices: h100, 8xh100, a bare 24GB, a TOML file; `memory` also takes lists and all.",
            "[N]xDEVICE",
            WHERE,
            complete="device",
        ),
    ]


ExpertGroups = Annotated[
    int,
    Option(
        "Expert parallelism: N groups of devices, each with 1/N of the experts. The devices of a group shard the MLP"
        " width of each expert.",
        "N",
        LAYOUT,
    ),
]


Tp = Annotated[int, Option("Tensor parallelism over N ranks: shards heads, MLP and vocabulary.", **_RANKS)]
Sp = Annotated[
    bool, Option("Sequence parallelism: the tp ranks also shard the residual stream.", None, LAYOUT, default=False)
]
Pp = Annotated[int, Option("Pipeline parallelism: N stages.", **_RANKS)]
Cp = Annotated[int, Option("Context parallelism over N ranks: shards each sequence.", **_RANKS)]


class Ranks(TypedDict, total=False):
    """Ranks that shard a model."""

    tp: Tp
    sp: Sp
    fsdp: Annotated[
        int, Option("FSDP: shards weights over N ranks (or groups of tp ranks), each with its own batch.", **_RANKS)
    ]
    ep: Annotated[int, Option("Expert parallelism: every N ranks of the layout share the experts.", **_RANKS)]
    pp: Pp
    cp: Cp


class Layout(Ranks, total=False):
    """A parallel layout."""

    dp: Annotated[
        int, Option("Data parallelism: N replicas, each with its own batch (DDP; HSDP with --fsdp).", **_RANKS)
    ]
    zero: Annotated[
        Literal[0, 1, 2, 3],
        Option(
            "ZeRO stage of --dp: shard optimizer state (1), also gradients (2), also weights (3, same as --fsdp).",
            "STAGE",
            LAYOUT,
            default=0,
        ),
    ]
    ulysses: Annotated[
        int, Option("Ulysses sequence parallelism over N ranks: shards tokens, and heads inside attention.", **_RANKS)
    ]
    schedule: Annotated[
        Literal["gpipe", "1f1b", "interleaved", "zero-bubble"],
        Option("Pipeline schedule. Default: 1f1b.", None, LAYOUT, default="1f1b"),
    ]
    microbatches: Annotated[
        int | None,
        Option("Micro-batches that --pp splits a batch into. Default in training: one per sequence.", "M", LAYOUT),
    ]
    pp_chunks: Annotated[int, Option("Stages per rank, with --schedule interleaved.", **_RANKS)]
    cp_method: Annotated[
        Literal["ring", "gather"],
        Option("How --cp ranks exchange keys and values. Default: ring.", None, LAYOUT, default="ring", advanced=True),
    ]
    tp_plan: Annotated[
        Literal["torch", "megatron"],
        Option(
            "Backward all-reduces of matmuls that share an input: one per matmul (torch) or one for all (megatron).",
            None,
            LAYOUT,
            default="torch",
            advanced=True,
        ),
    ]
    imbalance: Annotated[
        float, Option("Tokens on the fullest --ep rank, relative to the mean.", "X", LAYOUT, default=1.0, advanced=True)
    ]


Optimizer = Annotated[
    str | None,
    Option(
        "adamw (default), sgd, adafactor, muon, adamw-8bit. Others: adamw-foreach, adamw-for-loop,"
        " adamw-amsgrad, rmsprop, adagrad, adamax, nadam, sgd-foreach, sgd-momentum, sgd-momentum-foreach, none."
        " From transformers: adafactor-transformers, adafactor-transformers-beta1. From bitsandbytes:"
        " adamw-8bit-trainer (embeddings in 32 bits, as in Trainer), adamw-32bit, lion-8bit, lion-8bit-trainer,"
        " lion-32bit, ademamix-8bit, paged-adamw-8bit, paged-adamw-32bit, paged-lion-8bit, paged-lion-32bit.",
        "NAME",
        RECIPE,
        complete="optimizer",
    ),
]
Lora = Annotated[
    Size | None, Option("LoRA adapters of rank R on all linear layers, or on MODULES.", "R[:MODULES]", RECIPE)
]
AdapterDtype = Annotated[
    str | None,
    Option("Dtype of the adapters: fp32 (peft's default) or the dtype of the weights.", "DTYPE", RECIPE, advanced=True),
]
LoraDropout = Annotated[
    float | None, Option("Dropout on the adapters' inputs. Default: 0.", "SHARE", RECIPE, advanced=True)
]
Loss = Annotated[
    Literal["whole", "chunked"] | None,
    Option("chunked: compute logits and loss for an eighth of the tokens at a time. Default: whole.", None, RECIPE),
]
MasterWeights = Annotated[
    str | None, Option("fp32: the optimizer updates fp32 copies of 16-bit weights.", "DTYPE", RECIPE, advanced=True)
]


class MetricRecipe(TypedDict, total=False):
    """The part of a training recipe that changes the bytes of a metric. Defaults are those of `train`."""

    recompute: Recompute
    optimizer: Optimizer
    lora: Lora
    adapter_dtype: AdapterDtype
    lora_dropout: LoraDropout
    weights_dtype: WeightsDtype
    loss: Loss
    attention: Attention


class ModelStates(TypedDict, total=False):
    """Copies of weights and gradients, and offloading."""

    master_weights: MasterWeights
    gradient_dtype: Annotated[
        str | None, Option("fp32: accumulate gradients in fp32, as in Megatron.", "DTYPE", RECIPE, advanced=True)
    ]
    offload: Annotated[
        str | None, Option("Offload to the host: optimizer (state and master weights), activations.", "WHAT", RECIPE)
    ]


class TrainingRecipe(MetricRecipe, ModelStates, total=False):
    """The recipe of a training step."""

    qlora: Annotated[
        bool,
        Option("QLoRA of rank 16, or R with --qlora R: same as --lora R --weights nf4.", None, RECIPE, default=False),
    ]
    gradient_accumulation: Annotated[
        int | None, Option("Gradient accumulation: micro-batches per step. Default: 1.", "N", RECIPE)
    ]


class Counted(TypedDict, total=False):
    """Ways to count a metric."""

    logits: LogitsOf
    train: Train
    masked: Masked
    dtype: Dtype
    kv_dtype: KvDtype


class MetricTerms(Counted, MetricRecipe, total=False):
    """Ways to count a metric, training included."""


class RecipeLists(TypedDict, total=False):
    """The recipe of a training step, each part of it one value or a list."""

    recompute: Recompute
    optimizer: Optimizer
    lora: Lora
    adapter_dtype: AdapterDtype
    lora_dropout: Annotated[float | str | None, of(LoraDropout)]
    weights_dtype: WeightsDtype
    loss: Annotated[str | None, of(Loss)._replace(metavar="whole|chunked")]
    attention: Annotated[str | None, of(Attention)._replace(metavar="sdpa|eager")]
    master_weights: MasterWeights


Sizes = Collection[int] | str | None
"""Several whole numbers: a list, or a text such as "1,2,4"."""


class RankLists(TypedDict, total=False):
    """Ranks that shard a model, each axis one number or a list."""

    tp: Annotated[Sizes, Option("Tensor-parallel ranks: 1,2,4,8.", "N", LAYOUT)]
    fsdp: Annotated[Sizes, Option("FSDP ranks: 1,8,64.", "N", LAYOUT)]
    ep: Annotated[Sizes, Option("Expert-parallel ranks: 1,8.", "N", LAYOUT)]
    pp: Annotated[Sizes, Option("Pipeline stages: 1,2,4.", "N", LAYOUT)]
    cp: Annotated[Sizes, Option("Context-parallel ranks: 1,2,4.", "N", LAYOUT)]
    sp: Sp


class LayoutLists(RankLists, total=False):
    """The parallel layout of a training step, each axis one number or a list."""

    dp: Annotated[Sizes, Option("Data-parallel ranks: 1,8.", "N", LAYOUT)]
    zero: Annotated[Sizes, Option("ZeRO stages of --dp: 0,1,3.", "STAGE", LAYOUT)]


class StepOnRanks(Step, Ranks, total=False):
    """A step on ranks that shard it."""


class SequencesOnRanks(Sequences, Ranks, total=False):
    """Whole sequences on ranks that shard the model."""


class SequencesOnDevices(Sequences, Where, Ranks, total=False):
    """Whole sequences on devices and their ranks."""


class StepOnLayout(Step, Layout, total=False):
    """A step in a parallel layout."""


_GROUPED = (name for group in (Step, Usable, Layout, TrainingRecipe) for name in group.__annotations__)
ORDER = ("on", "ctx", "batch", *_GROUPED)
"""Options of groups, in the order of the help."""


MODEL_HELP = "Preset, config.json, TOML, hub id, or - for stdin."


class Which(NamedTuple):
    """The models on a command line."""

    models: Annotated[
        list[str] | None, Option(f"{MODEL_HELP} Default: all presets.", "[MODEL]…", complete="model", argument=True)
    ] = None
    sets: Sets = None
    family: Annotated[
        str | None, Option("Only presets of this family.", "NAME", MODELS, complete="family", advanced=True)
    ] = None
    max_params: Annotated[
        str | None, Option("Only presets with at most this many parameters: 8B, 500M.", "N", MODELS, advanced=True)
    ] = None
    part: Annotated[
        Literal["text", "vision", "audio", "both"] | None,
        Option(
            "Part of a multimodal model: text (default), vision, audio; both: text and every encoder, with their sum.",
            None,
            MODELS,
            advanced=True,
        ),
    ] = None
    model: Annotated[str, Option(MODEL_HELP, "MODEL", complete="model", argument=True)] = ""


class Shown(NamedTuple):
    """How a report is shown."""

    json: Annotated[bool, Option("JSON with exact integers and stable keys.", None, OUTPUT)] = False
    csv: Annotated[bool, Option("CSV with raw numbers.", None, OUTPUT)] = False
    markdown: Annotated[bool, Option("Markdown table.", None, OUTPUT)] = False
    output: Annotated[
        list[str] | None,
        Option("Also write FILE.json, .csv, .md, .html, .tex, or a picture: .png, .svg, .pdf.", "FILE", OUTPUT),
    ] = None
    style: Annotated[
        Literal["light", "dark", "print"], Option("Colours of a picture.", None, OUTPUT, advanced=True)
    ] = "light"
    force: Annotated[bool, Option("Overwrite an existing file.", None, OUTPUT)] = False
    digits: Annotated[bool, Option("Show all digits in the table.", None, OUTPUT)] = False
    limit: Annotated[
        int | None, Option("At most N rows; 0: all. Default: 20 on a terminal. JSON has all.", "N", OUTPUT)
    ] = None
    sort: Annotated[str | None, Option("Sort rows by a column; -COLUMN: descending.", "COLUMN", OUTPUT)] = None
    verbose: Annotated[bool, Option("Show all notes: what is counted, and what is not.", None, OUTPUT)] = False
    strict: Annotated[
        bool,
        Option(
            "Exit with status 1 if a total differs from its source, or a model does not fit --on.",
            None,
            OUTPUT,
            advanced=True,
        ),
    ] = False
    explain: Annotated[bool, Option("Derive the total step by step, for checking by hand.", None, OUTPUT)] = False
    latex: Annotated[bool, Option("LaTeX: the table, formula or derivation.", None, OUTPUT)] = False
    open: Annotated[bool, Option("Open the page in your browser.", None, OUTPUT)] = False


# Reading a signature


@cache
def spread(function: Callable[..., Any]) -> Signature:
    """A function's signature with its option groups expanded."""
    found = []
    for parameter in signature(function).parameters.values():
        if parameter.kind is not Parameter.VAR_KEYWORD or parameter.name == "sets":
            found.append(parameter)
            continue
        (group,) = get_args(parameter.annotation)
        for name in sorted(group.__annotations__, key=lambda name: ORDER.index(name) if name in ORDER else -1):
            kind = group.__annotations__[name]
            found.append(Parameter(name, Parameter.KEYWORD_ONLY, default=of(kind).default, annotation=kind))
    return Signature(sorted(found, key=lambda one: one.kind))


def plain(annotation: Any) -> Any:
    """The type in an annotation."""
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def choices(annotation: Any) -> tuple[Any, ...]:
    """The allowed values of an option; empty if any value is allowed."""
    kind = plain(annotation)
    return next((get_args(one) for one in (kind, *get_args(kind)) if get_origin(one) is Literal), ())


def typed(name: str, annotation: Any) -> str:
    """An option as it is typed, with its metavar: `--ctx S`."""
    about = of(annotation)
    if about.argument:
        return str(about.metavar)
    values = about.metavar or "|".join(map(str, choices(annotation)))
    return f"{shell_option(name)} {values}".strip()


def shared() -> dict[str, Any]:
    """Annotations of the shared options, in the order of the help."""
    found: dict[str, Any] = {}
    for group in (Step, Deployed, Where, Layout, TrainingRecipe, Which, Shown):
        found |= group.__annotations__
    named = [name for name in found if not of(found[name]).argument]
    named.sort(key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))
    return {name: found[name] for name in sorted(named, key=lambda name: GROUPS.index(str(of(found[name]).group)))}


# From options to what reports take


def among(group: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The given options that belong to a group."""
    return {name: value for name, value in given.items() if name in group.__annotations__}


def request(given: Mapping[str, Any], **more: Any) -> Request:
    """The workload in the given options. Raises UsageError."""
    read = {
        name: value if name == "decode" else size(name, value) for name, value in among(Step, {**given, **more}).items()
    }
    return Request(**read, **{name: value for name, value in more.items() if name == "logits"})


def mesh(given: Mapping[str, Any]) -> "Mesh | None":
    """The mesh in the given options; None if nothing is sharded. Raises UsageError."""
    layout = among(Layout, given)
    defaults = {name: of(Layout.__annotations__[name]).default for name in layout}
    if all(repr(value) == repr(defaults[name]) for name, value in layout.items()):  # True is not 1
        return None
    from tfacct.parallel.mesh import mesh_of

    return mesh_of(**layout)


def mesh_of_pass(given: Mapping[str, Any]) -> "Mesh | None":
    """The mesh of a forward pass. Raises UsageError."""
    found = mesh(given)
    if found is None:
        return None
    from tfacct.parallel.mesh import checked_pass

    return checked_pass(found)


def budget(given: Mapping[str, Any], *, training: bool = False) -> "MemoryLimit | None":
    """The usable memory of the named devices; None if none is named. Raises TfacctError."""
    on, use, reserve = (given.get(name) for name in ("on", "use", "reserve"))
    if on is None:  # does not read device files
        for name, value in {"use": use, "reserve": reserve}.items():
            if value is not None:
                raise UsageError(f"{option(name)} needs {option('on')}")
        return None
    from tfacct.loading.memory_limit import memory_limit

    return memory_limit(on, use, reserve, training=training)


def recipe(given: Mapping[str, Any], dtype: str | None = None, **more: Any) -> "Recipe":
    """The recipe in the given options, not yet checked (see `Recipe.checked`). Raises UsageError."""
    from tfacct.training.recipe import Recipe

    named = {name: value for name, value in among(TrainingRecipe, given).items() if value is not None}
    if named.get("lora") is not None:
        named["lora"] = str(named["lora"])
    qlora = named.pop("qlora", False)
    made = Recipe(dtype or "bf16", **{**named, **more})
    return made.with_qlora() if qlora else made


def counting(given: Mapping[str, Any]) -> "Counting":
    """How a metric is counted, from the given options. Raises UsageError."""
    from tfacct.reports.metrics import Counting, named_of

    recipe = named_of({name: given.get(name) for name in RecipeLists.__annotations__})
    masked, train = bool(given.get("masked")), bool(given.get("train"))
    return Counting(given.get("dtype"), given.get("kv_dtype"), masked, train, recipe)


def size(name: str, given: Any) -> Any:
    """`given` as a whole number: `"8k"`, or an integer of numpy. Anything else is returned unchanged."""
    if isinstance(given, str):
        from tfacct.base import ranges

        if name == "ctx" and given.lower() == "max":
            longest = f"solve MODEL {option('unknown', 'ctx')} {option('on', 'DEVICE')}"
            raise UsageError(
                f"{option('ctx')} must be a number of tokens, not {given!r}",
                f"leave it out for the model's longest context; `tfacct {longest}` finds the longest that fits, with"
                f" {option('train', True)} of a training step",
            )
        if name in Step.__annotations__:  # these list values in `sweep`
            ranges.check_commas(option(name), given)
        return units.read_tokens(option(name), given)
    if isinstance(given, bool) or not hasattr(given, "__index__"):
        return given
    try:
        return given.__index__()
    except TypeError:  # an array that is not one whole number
        return given


START = {"lora": r"(?=\d|$)", "recompute": r"(?=none|full|attention|selective|$)"}
"""How a value starts in a list whose values have commas too."""


def values(name: str, given: Any) -> list[Any]:
    """The values that an option lists; None is its default."""
    from tfacct.base import ranges

    if not isinstance(given, str):
        return list(given) if isinstance(given, (list, tuple, range)) else [given]
    is_size = name in Step.__annotations__
    if is_size and units.is_tokens(given):
        return ranges.read_some(option(name), given)
    texts = [one.strip() or None for one in re.split(r",\s*" + START.get(name, ""), given)]
    if name in Layout.__annotations__:
        return [None if one is None else units.read_integer(option(name), one) for one in texts]
    if name == "lora_dropout":
        return [None if one is None else _as_share(name, one) for one in texts]
    if not is_size:
        return texts
    read = ([None] if one is None else ranges.read_some(option(name), one) for one in texts)
    return [value for values in read for value in values]


def _as_share(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{option(name)} must be a number, not {cut(text)!r}", "for example 0.1") from None


def several(name: str, step: Mapping[str, Any]) -> tuple[list[int] | None, dict[str, Any]]:
    """The list of sizes if one option has several, else None; and the options with its largest."""
    from tfacct.base import ranges

    given = step.get(name)
    if isinstance(given, str):
        found = ranges.read_some(option(name), given)
    elif isinstance(given, Collection):
        ranges.limited(option(name), given)
        found = list(sizes(name, given))
    else:
        return None, dict(step)
    if not found:
        raise UsageError(f"{option(name)} has no values")
    return (found if len(found) > 1 else None), {**step, name: max(found)}


def sizes(name: str, given: Any) -> Any:
    """The whole numbers in a range such as `"1k..128k"`; a number as a list of one; a collection unchanged."""
    from tfacct.base import ranges

    if isinstance(given, str):
        return ranges.read_values(option(name), given)
    if isinstance(given, range):  # whole numbers already, perhaps very many
        return given
    if isinstance(given, Collection) and any(isinstance(value, str) for value in given):
        return [size(name, value) for value in given]
    one = size(name, given)
    return [one] if isinstance(one, (int, bytes)) and not isinstance(one, bool) else given
