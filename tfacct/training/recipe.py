"""The recipe of a training step: precision, optimizer, recomputation, gradient accumulation, attention, loss, LoRA and
layout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, get_args

from tfacct.base import units
from tfacct.base.combinations import Features, Unsupported, matching
from tfacct.base.errors import UsageError, joined
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger.workload import Workload, check_size
from tfacct.loading.model import LoadedModel
from tfacct.parallel.mesh import Mesh, checked
from tfacct.parallel.pipeline import microbatches
from tfacct.parallel.rules import Recomputed
from tfacct.training.measured import AttentionKind, attention_of
from tfacct.training.optimizers import optimizer
from tfacct.training.recompute import ATTENTION, DEFAULT, OP, modules_of

ANY_ATTENTION = "sdpa, or eager if the class has nothing else"
"""The attention of several models if none is given."""
Loss = Literal["whole", "chunked"]
FP32, NF4, ADAMW = "fp32", "nf4", "adamw"
DTYPES = "bf16", "fp16", FP32
"""Dtypes that training runs in."""
OFFLOADED = ("optimizer", "activations")
"""What can be offloaded to the host."""


@record
class Recipe:
    """How a model is trained.

    `dtype`: that of the forward and backward pass, and of weights, gradients and optimizer state unless `weights_dtype`
    is set. `recompute`: activation checkpointing of every layer ("full"), of its attention, or of modules
    ("selective"). `attention`: the transformers implementation; None: the default of the class.
    `gradient_accumulation`: micro-batches of an optimizer step. `keep_logits`: the caller keeps the logits until the
    step ends. `loss`: over all tokens at once, or in chunks with recomputed logits. `lora`: rank of peft's adapters,
    and target modules unless all are adapted; `adapter_dtype`: dtype of their weights; `lora_dropout`: dropout on their
    inputs. `weights_dtype`: "fp32" runs the pass under autocast, "nf4" stores the frozen weights of linear layers in 4
    bits; under FSDP fp32 weights are cast before they are gathered, and nothing runs under autocast. `master_weights`:
    "fp32" keeps a copy of 16-bit weights that the optimizer updates; `gradient_dtype`: "fp32" accumulates the gradients
    in fp32. `offload`: what is on the host: "optimizer", "activations" or both. `packing`: sequences are packed into
    one row. `mesh`: the parallel layout.
    """

    dtype: str = "bf16"
    optimizer: str = ADAMW
    recompute: str = "none"
    attention: AttentionKind | None = None
    gradient_accumulation: int = 1
    keep_logits: bool = False
    loss: Loss = "whole"
    lora: str | None = None
    adapter_dtype: str = FP32
    lora_dropout: float = 0.0
    weights_dtype: str | None = None
    master_weights: str | None = None
    gradient_dtype: str | None = None
    offload: str | None = None
    packing: bool = False
    mesh: Mesh | None = None

    def with_qlora(self) -> Recipe:
        """The recipe as QLoRA: adapters on nf4 weights, of rank 16 unless given. Raises UsageError."""
        if self.weights_dtype not in (None, NF4):
            raise UsageError(
                f"{option('qlora', True)} uses {NF4} weights, not {self.weights_dtype}",
                f"leave {option('weights_dtype')} out",
            )
        return replace(self, lora=self.lora or "16", weights_dtype=NF4)

    @property
    def trains_in_dtype(self) -> bool:
        """True for a dtype that training runs in. Raises NotFoundError for an unknown one."""
        return units.dtype_name(self.dtype) in DTYPES

    def named(self, dtypes: Sequence[str] = DTYPES) -> Recipe:
        """The recipe with its names normalized. `dtypes`: those that its pass may have. Raises TfacctError for an
        unknown name."""
        dtype = units.dtype_name(self.dtype)
        optimizer(self.optimizer)
        _ = self.recomputed_modules
        named = replace(self, dtype=dtype, adapter_dtype=units.dtype_name(self.adapter_dtype))
        choices: dict[str, tuple[str | None, ...]] = {
            "loss": get_args(Loss),
            "attention": (None, *get_args(AttentionKind)),
            "adapter_dtype": (FP32, *dtypes),
            "weights_dtype": (None, *dtypes, FP32, NF4),
            "master_weights": (None, FP32),
            "gradient_dtype": (None, *dtypes, FP32),
        }
        for name, known in choices.items():
            if (value := getattr(named, name)) not in known:
                words = joined([*dict.fromkeys(filter(None, known))], "or")
                flash = value.startswith("flash") and f"{option('attention', 'sdpa')}: torch runs its flash kernel"
                raise UsageError(f"{option(name)} is {words}, not {value!r}", flash or None)
        on_host = [name.strip() for name in (self.offload or "").split(",") if name.strip()]
        if unknown := next((name for name in on_host if name not in OFFLOADED), None):
            raise UsageError(f"{option('offload')} must be {' or '.join(OFFLOADED)}, not {unknown!r}")
        return replace(
            named,
            weights_dtype=None if self.weights_dtype == dtype else self.weights_dtype,
            gradient_dtype=None if self.gradient_dtype == dtype else self.gradient_dtype,
            offload=",".join(name for name in OFFLOADED if name in on_host) or None,
        )

    def checked(self) -> Recipe:
        """The recipe with its names normalized. Raises TfacctError for an unknown name or a contradiction."""
        dtype = units.dtype_name(self.dtype)
        if not self.trains_in_dtype:
            instead = f"{option('qlora', True)} trains adapters next to weights in {NF4}" if dtype == NF4 else None
            raise UsageError(f"training runs in bf16, fp16 or fp32, not in {dtype}", instead)
        check_size(option("gradient_accumulation"), self.gradient_accumulation)
        if not 0 <= self.lora_dropout < 1:
            raise UsageError(f"{option('lora_dropout')} must be at least 0 and below 1, not {self.lora_dropout}")
        found = replace(self.named((dtype,)), mesh=None if self.mesh is None else checked(self.mesh))
        for row in matching(RECIPES, Features(RECIPE_FEATURES, found)):
            raise UsageError(row.reason, row.instead)
        return found

    def runs(self, work: Workload) -> Workload:
        """The workload of the class: one row of all tokens if sequences are packed."""
        if not self.packing:
            return work
        return replace(work, context=work.batch * work.context, tokens=work.batch * work.tokens, batch=1)

    def offloads(self, what: str) -> bool:
        """True if `what` is on the host: "optimizer" or "activations"."""
        return self.offload is not None and what in self.offload.split(",")

    def for_model(self, model: LoadedModel) -> Recipe:
        """The recipe with the default attention of a model's class: sdpa, or eager if it has no other."""
        return self if self.attention is not None else replace(self, attention=attention_of(model.family))

    def for_models(self, models: Sequence[LoadedModel]) -> Recipe:
        """The recipe with the default attention of all these models; None where the defaults differ."""
        kinds = {self.for_model(model).attention for model in models}
        return replace(self, attention=kinds.pop()) if len(kinds) == 1 else self

    @property
    def recomputed_modules(self) -> tuple[str, ...]:
        """Names of the recomputed modules of a layer; empty if whole layers or nothing is recomputed. Raises UsageError
        for an unknown name."""
        return () if self.recompute in ("none", "full") else modules_of(self.recompute)

    @property
    def recomputed_sends(self) -> Recomputed | None:
        """What recomputation sends again; None if nothing, or if that is not counted."""
        if self.recompute == "full":
            return "layers" if self.lora is None else None
        return "attention" if {ATTENTION, DEFAULT}.intersection(self.recomputed_modules) else None

    @property
    def has_uncounted_sends(self) -> bool:
        """True if recomputation may send again what is not counted."""
        again = self.recompute == "full" if self.lora is not None else {OP, "moe"}.intersection(self.recomputed_modules)
        return bool(again) and self.mesh is not None and self.mesh.tp > 1

    @property
    def layout(self) -> Mesh:
        """The parallel layout of a recipe that has one."""
        assert self.mesh is not None
        return self.mesh

    @property
    def accumulates(self) -> bool:
        """True if gradients of earlier micro-batches, or their fp32 buffer, exist when the last micro-batch runs."""
        return self.gradient_accumulation > 1 or self.fp32_gradients

    @property
    def fp32_gradients(self) -> bool:
        """True if the gradients of 16-bit weights are accumulated in fp32."""
        return self.gradient_dtype == FP32 and not self.in_fp32 and self.master_weights is not None

    @property
    def in_fp32(self) -> bool:
        """True if the forward and backward pass run in fp32."""
        return self.dtype == FP32

    @property
    def weights_format(self) -> str:
        """The format of the model's weights."""
        return self.weights_dtype or self.dtype

    @property
    def stored_dtype(self) -> str:
        """The dtype of weights, gradients and residual stream in the pass: fp32 under autocast."""
        return FP32 if self.autocast else self.dtype

    @property
    def trained_dtype(self) -> str:
        """The dtype of the trained weights: those of the model, or of adapters."""
        return self.weights_format if self.lora is None else self.adapter_dtype

    @property
    def autocast(self) -> bool:
        """True if the pass casts fp32 weights under torch.autocast."""
        return self.weights_dtype == FP32 and not self.in_fp32 and not self.shards_weights

    @property
    def shards_weights(self) -> bool:
        """True if FSDP shards the weights."""
        return self.mesh is not None and self.mesh.fsdp > 1

    @property
    def precision(self) -> str:
        """The precision scheme: dtypes of the pass, of weights and gradients."""
        if self.autocast:
            return f"{self.dtype} autocast over fp32 weights"
        if self.weights_dtype == FP32 and self.shards_weights:
            return f"{self.dtype} over fp32 weights"
        master = "" if self.master_weights is None else " with fp32 master weights"
        return f"{self.dtype}{master}{' and fp32 gradients' if self.fp32_gradients else ''}"

    @property
    def rounds_tokens(self) -> bool:
        """True if a kernel rounds the number of tokens up, so that saved bytes are not a polynomial in it."""
        return self.in_fp32 and self.attention != "eager"

    @property
    def description(self) -> str:
        """The optimizer, and all differences from the defaults except precision."""
        changed = {
            "full recomputation": self.recompute == "full",
            f"{', '.join(self.recomputed_modules)} recomputed": bool(self.recomputed_modules),
            "logits saved": self.keep_logits,
            "loss in chunks": self.loss == "chunked",
            "packed": self.packing,
            f"{(self.offload or '').replace(',', ' and ')} offloaded": self.offload is not None,
        }
        on = f" on {NF4}" if self.weights_dtype == NF4 else ""
        lora = [] if self.lora is None else [f"LoRA {self.lora} in {self.adapter_dtype}{on}"]
        return ", ".join([self.optimizer, *lora, *(words for words, so in changed.items() if so)])

    @property
    def runs_with(self) -> str:
        """The setup of the class: attention, peft, autocast and torch's tensor-parallel plan."""
        peft = ""
        if self.lora is not None:
            peft = ", peft and bitsandbytes" if self.weights_dtype == NF4 else " and peft"
        autocast = " under torch.autocast" if self.autocast else ""
        plan = " on torch's tensor-parallel plan" if self.mesh is not None and self.mesh.tp > 1 else ""
        return f"{self.attention or ANY_ATTENTION}{peft}{autocast}{plan}"

    @property
    def counted(self) -> str:
        """A phrase for what is counted."""
        return f"every tensor that autograd saves or allocates, as in transformers 5 with {self.runs_with}"


RECIPES = (
    Unsupported(
        "chunked keep_logits",
        "{keep_logits=True} does not work with {loss=chunked}, which computes logits chunk by chunk",
    ),
    Unsupported("adapters no_lora", "{adapter_dtype} and {lora_dropout} need {lora}"),
    *(
        Unsupported(f"nf4 {other}", "{weights_dtype=nf4} needs {lora} and a 16-bit {dtype}")
        for other in ("no_lora", "fp32")
    ),
    Unsupported(
        "master_weights trains_fp32",
        "{master_weights=fp32} needs 16-bit trained weights, but these are in fp32",
        "leave {master_weights} out",
    ),
    Unsupported(
        "gradients_fp32 no_master_weights",
        "{gradient_dtype=fp32} needs {master_weights=fp32}: torch's gradients otherwise have the dtype of the weights",
    ),
    Unsupported(
        "offload_activations not_recomputed",
        "{offload=activations} offloads the inputs of recomputed layers, so it needs recomputation",
        "add {recompute=full}",
    ),
)
"""Combinations within a recipe that are not supported."""
RECIPE_FEATURES: Mapping[str, tuple[str, Callable[[Recipe], object]]] = {
    "chunked": ("{loss=chunked}", lambda recipe: recipe.loss == "chunked"),
    "keep_logits": ("{keep_logits=True}", lambda recipe: recipe.keep_logits),
    "lora": ("LoRA", lambda recipe: recipe.lora is not None),
    "no_lora": ("no {lora}", lambda recipe: recipe.lora is None),
    "adapters": ("{adapter_dtype} or {lora_dropout}", lambda one: one.adapter_dtype != FP32 or one.lora_dropout),
    "nf4": ("{weights_dtype=nf4}", lambda recipe: recipe.weights_dtype == NF4),
    "fp16": ("{dtype=fp16}", lambda recipe: recipe.dtype == "fp16"),
    "fp32": ("{dtype=fp32}", lambda recipe: recipe.in_fp32),
    "fp32_weights": ("{weights_dtype=fp32}", lambda recipe: recipe.weights_dtype == FP32),
    "not_nf4": ("weights not in nf4", lambda recipe: recipe.weights_dtype != NF4),
    "autocast": ("autocast", lambda recipe: recipe.autocast),
    "adapters_16bit": ("adapters in 16 bits", lambda recipe: recipe.lora and recipe.adapter_dtype != FP32),
    "master_weights": ("{master_weights=fp32}", lambda recipe: recipe.master_weights is not None),
    "no_master_weights": ("no {master_weights}", lambda recipe: recipe.master_weights is None),
    "trains_fp32": ("trained weights in fp32", lambda recipe: recipe.trained_dtype == FP32),
    "gradients_fp32": ("{gradient_dtype=fp32}", lambda recipe: recipe.gradient_dtype is not None),
    "packing": ("{packing=True}", lambda recipe: recipe.packing),
    "offload_activations": ("{offload=activations}", lambda recipe: recipe.offloads("activations")),
    "not_recomputed": ("a {recompute} other than full", lambda recipe: recipe.recompute != "full"),
    "sdpa": ("{attention=sdpa}", lambda recipe: recipe.attention == "sdpa"),
    "eager": ("{attention=eager}", lambda recipe: recipe.attention == "eager"),
    "recompute_part": ("recomputation of part of a layer", lambda recipe: recipe.recomputed_modules),
    "whole_tensor_optimizer": (
        "an optimizer that needs whole tensors",
        lambda recipe: None if optimizer(recipe.optimizer).elementwise else recipe.optimizer,
    ),
}
"""Features of a recipe: label in the documentation, and value."""


class BatchSizes(NamedTuple):
    """Sequences of a forward pass on a data-parallel rank (of all micro-batches in a pipeline); micro-batches of an
    optimizer step (1 in a pipeline); and the layout, with the micro-batches of its pipeline."""

    batch: int
    gradient_accumulation: int
    mesh: Mesh | None


def batch_sizes(
    batch: int | None, micro: int | None, steps: int | None, whole: int | None, mesh: Mesh | None
) -> BatchSizes:
    """Batch sizes from the given ones: global batch = micro-batch · steps · data-parallel ranks. A micro-batch is one
    sequence unless the other sizes determine it. The steps are the micro-batches of a pipeline if there is one; without
    a number of steps or a larger micro-batch, the schedule decides. Raises UsageError for sizes that do not divide."""
    given = {"micro_batch_size": micro, "gradient_accumulation": steps, "global_batch_size": whole}
    for name, size in given.items():
        if size is not None:
            check_size(option(name), size)
    mesh = None if mesh is None else checked(mesh)
    ranks, stages = (1, 1) if mesh is None else (mesh.batch_shards, mesh.pp)
    if batch is not None and stages > 1 and (micro or whole):
        raise UsageError(f"{option('batch')} is the whole pipeline batch: use {option('micro_batch_size')}")
    if batch is not None and micro is not None:
        raise UsageError(
            f"{option('micro_batch_size', micro)} and {option('batch', batch)} set the same size: give only one"
        )
    free = micro is None or (micro == 1 and not (mesh and mesh.microbatches))
    by_schedule = free and (steps is None or (steps == 1 and whole is None))
    micro = batch if micro is None else micro
    if whole is not None:
        steps, micro = _step_sizes(whole, micro, steps, ranks)
    micro, steps = micro or 1, steps or 1
    if stages == 1 or mesh is None:
        return BatchSizes(micro, steps, mesh)
    if by_schedule:
        return BatchSizes(micro * steps, 1, mesh)
    if mesh.microbatches not in (0, steps):
        raise UsageError(
            f"{option('microbatches', mesh.microbatches)} does not match the other batch sizes, which give {steps:,}",
            f"leave {option('microbatches')} out",
        )
    return BatchSizes(micro * steps, 1, replace(mesh, microbatches=steps))


def _step_sizes(whole: int, micro: int | None, steps: int | None, ranks: int) -> tuple[int, int]:
    """Micro-batches of an optimizer step, and their size."""
    each, left = divmod(whole, ranks)
    of, on = (
        f"{option('global_batch_size', whole)} does not divide into",
        f"over {units.number_of(ranks, 'data-parallel rank')}",
    )
    if left:
        raise UsageError(f"{of} {ranks:,} data-parallel ranks", f"give a multiple of {ranks:,}")
    if micro is None and steps is not None:
        if each % steps:
            raise UsageError(f"{of} {steps:,} micro-batches {on}")
        return steps, each // steps
    micro = micro or 1
    if steps is None and each % micro:
        raise UsageError(f"{of} micro-batches of {micro:,} {on}")
    if steps is not None and each != micro * steps:
        raise UsageError(
            f"{option('global_batch_size', whole)} is not {micro * steps * ranks:,}, that is {steps:,} micro-batches of"
            f" {micro:,} {on}",
            "leave one of the three out",
        )
    return each // micro, micro


def micro_batches(work: Workload, recipe: Recipe) -> tuple[int, int]:
    """Sequences of a micro-batch on a data-parallel rank, and micro-batches of an optimizer step."""
    mesh = recipe.mesh
    stages = 1 if mesh is None or mesh.pp == 1 else microbatches(mesh, work.axes(), train=True)
    return work.batch // stages, recipe.gradient_accumulation * stages


def batch_words(work: Workload, recipe: Recipe) -> str:
    """The batch of a step in words: `batch 6`, or `64 accumulation steps of 1 sequence on each of 8 ranks (512 per
    optimizer step)`."""
    size, count = micro_batches(work, recipe)
    mesh = recipe.mesh or Mesh()
    replicas = mesh.batch_shards
    steps = "micro-batches" if mesh.pp > 1 else "accumulation steps"
    words = f"batch {size:,}" if count == 1 else f"{count:,} {steps} of {units.number_of(size, 'sequence')}"
    if replicas > 1:
        words += f" on each of {replicas:,} {'ranks' if replicas == mesh.ranks else 'data-parallel groups'}"
    if replicas == 1 and 1 in (size, count):
        return words
    return f"{words} ({size * count * replicas:,} per optimizer step)"


def size_facts(work: Workload, recipe: Recipe) -> dict[str, int]:
    """The batch sizes of a step for the JSON."""
    ranks = 1 if recipe.mesh is None else recipe.mesh.batch_shards
    size, count = micro_batches(work, recipe)
    return {"micro_batch_size": size, "gradient_accumulation": count, "global_batch_size": size * count * ranks}
