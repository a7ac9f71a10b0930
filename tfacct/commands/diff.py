"""Two models, or one before and after a change, line by line."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack

from tfacct import options as opt
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.commands.command import Command, Found
from tfacct.options import Option

if TYPE_CHECKING:
    from tfacct.loading.model import LoadedModel
    from tfacct.output.chart import Chart

RECIPE = tuple(opt.MetricRecipe.__annotations__)


def _to(name: str, about: str) -> Any:
    return Option(about, opt.of(opt.MetricTerms.__annotations__[name]).metavar, advanced=True)


class DiffOptions(opt.Step, opt.MetricTerms, total=False):
    """A step, how its metrics are counted, and what changes on the new side."""

    to_ctx: Annotated[opt.Size | None, Option("Context of the new side.", "S")]
    to_tokens: Annotated[opt.Size | None, Option("New tokens of the new side.", "T", advanced=True)]
    to_batch: Annotated[opt.Size | None, Option("Batch of the new side.", "B")]
    to_dtype: Annotated[str | None, Option("How the new side's weights are stored.", "DTYPE", complete="dtype")]
    to_kv_dtype: Annotated[str | None, Option("How its KV cache is stored.", "DTYPE", complete="kv_dtype")]
    to_optimizer: Annotated[str | None, _to("optimizer", "Optimizer of the new side.")]
    to_recompute: Annotated[str | None, _to("recompute", "Activation checkpointing of the new side.")]
    to_attention: Annotated[Literal["sdpa", "eager"] | None, _to("attention", "Attention of the new side.")]
    to_loss: Annotated[Literal["whole", "chunked"] | None, _to("loss", "Loss of the new side.")]
    to_lora: Annotated[opt.Size | None, _to("lora", "LoRA of the new side.")]
    to_adapter_dtype: Annotated[str | None, _to("adapter_dtype", "Dtype of its adapters.")]
    to_lora_dropout: Annotated[float | None, _to("lora_dropout", "Their dropout.")]
    to_weights_dtype: Annotated[str | None, _to("weights_dtype", "Its weights in training.")]


def diff(
    models: "Sequence[LoadedModel]",
    *,
    fields: opt.Sets = None,
    all: Annotated[bool, Option("Also list the rows that do not change.")] = False,  # noqa: A002
    **options: Unpack[DiffOptions],
) -> Found:
    """Two models, or one before and after a change, line by line.

    FLOPs, parameters and bytes before and after a change of fields, workload or dtype, or of two models. The table
    holds the rows that change, or `all`. With `train` the bytes of a training step are compared too, of a recipe as in
    `train`, such as `optimizer`. Raises TfacctError.
    """
    from tfacct.reports.diff import diff

    if not 1 <= len(models) <= 2:
        raise UsageError(f"diff takes one or two models, not {len(models)}")
    old, new = models[0], models[-1]
    if fields:
        from tfacct.loading.sets import read_sets

        new = new.with_fields({**new.changed, **read_sets(fields)})
    logits: Any = options.get("logits", "all")
    before = opt.request(options, logits=logits)
    if options.get("decode") and options.get("to_tokens") is not None:
        raise UsageError(f"{option('decode', True)} is one new token on both sides: leave {option('to_tokens')} out")
    to: dict[str, Any] = {name.removeprefix("to_"): value for name, value in options.items() if name.startswith("to_")}
    sizes = {name: opt.size(f"to_{name}", to[name]) for name in ("ctx", "tokens", "batch") if to.get(name) is not None}
    after = replace(before, **sizes)
    terms = opt.counting(options)
    stored = terms.stored(to.get("dtype"), to.get("kv_dtype")).with_recipe({name: to.get(name) for name in RECIPE})
    report = diff(old, new, before, after, terms=terms, to=stored, every=all)

    def chart() -> "Chart":
        from tfacct.reports.charts import diff_chart

        return diff_chart(old, new, before, after, report, terms)

    return Found(report, chart)


COMMAND = Command(
    diff,
    examples=("tfacct diff llama-3.1-8b --set num_key_value_heads=1", "tfacct diff llama-3.1-8b qwen3-8b --ctx 8k"),
    drawn=True,
)
