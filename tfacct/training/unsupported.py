"""Unsupported training steps: one row for each combination of features of a model, recipe and layout.

The errors, the nearest step that is supported, and the support matrix of the documentation follow from the rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from tfacct.architecture.parts import Attention, Embedding, Experts, FeedForward, LatentAttention, Patches, mixers
from tfacct.base.combinations import Features, Unsupported, matching, together
from tfacct.base.errors import TfacctError, UsageError, listed
from tfacct.base.spelling import option, setting, spelled
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.parallel.mesh import VOCABULARY, Mesh, padded_axes, replicated_heads
from tfacct.parallel.shard_model import on_ranks
from tfacct.parallel.support import (
    MESH_FEATURES,
    check_mesh,
    check_shardable,
    check_together,
    encodes,
    gathers_heads,
    in_parallel,
    routing_bits,
    several,
    shards_weights_only,
    unsupported_part,
)
from tfacct.training import bounds
from tfacct.training.bounds import NOT_ON_META, exact_advice, loss_advice
from tfacct.training.lora import (
    ATTENTION,
    LoraTargets,
    adapted,
    linear_layers,
    lora_targets,
    not_linear,
    routed,
    unknown_targets,
)
from tfacct.training.measured import AttentionKind
from tfacct.training.recipe import NF4, RECIPE_FEATURES, RECIPES, Recipe
from tfacct.training.saved_tensors import ACTIVATIONS, predicts_next_token
from tfacct.training.traits import UNVERIFIED_DEFAULTS, unverified_fields

LOSSES = frozenset(f"AutoModelFor{what}Classification" for what in ("Sequence", "Token", "Image"))
"""Kinds of classes with a classification loss per sequence, position or image."""
SMALL_VOCABULARY = 2
"""Smallest vocabulary in hidden sizes; below it, the forward pass of the loss would need more memory than its
gradient."""
INPUT_SAVING = frozenset(("gelu", "gelu_pytorch_tanh", "silu", "swish"))
"""Activations that save nothing but their input, also with a gate and in experts."""
WIDEST, STEP = 256, 8
"""The widest head of torch's flash kernel, and the multiple to which it pads other widths."""


# The rows.

TARGETS = (
    Unsupported("lora not_linear", "{of[not_linear]}", "{lora=16} adapts all of its linear layers"),
    Unsupported("lora unknown_targets", "{of[unknown_targets]}"),
)
LAYOUTS = (
    Unsupported(
        "unsupported_part", "{of[unsupported_part]}", "`tfacct params` and `plan` count its weights with {fsdp}"
    ),
    together("encoder cp", "an encoder with {cp}", "leave {cp} out"),
    together("encoder ulysses", "an encoder with {ulysses}", "leave {ulysses} out"),
    together("encoder pp other_axes", "an encoder with {pp} and another parallel axis", "leave out {pp} or the others"),
    together("encoder_decoder zero2", "an encoder–decoder with {zero=2}", "leave {zero} out"),
    together(
        "encoder_decoder fsdp fp32_weights",
        "an encoder–decoder with {fsdp} and {weights_dtype=fp32}",
        "leave {weights_dtype} out",
    ),
    together("encoder lora sharded", "LoRA on an encoder in a sharded layout", "use {dp} alone"),
    together("parallel_sublayers lora sharded", "LoRA on parallel sublayers in a sharded layout", "use {dp} alone"),
    together("parallel_sublayers computes", "a model with parallel sublayers in this layout", "use {fsdp}"),
    together("ep expert_bias", "{ep} with expert biases", "leave {ep} out"),
    together(
        "odd_attention lora sharded",
        "LoRA on attention with ALiBi, sinks or gates in a sharded layout",
        "use {dp} alone",
    ),
    together("odd_attention computes", "attention with ALiBi, sinks or gates in this layout", "use {fsdp}"),
    together("lora uneven", "LoRA with a {tp} that does not divide all heads and widths", "choose another {tp}"),
    together("sp ep shared_expert", "{ep} with {sp=True} and a shared expert", "leave {ep} out"),
    together("ep recompute_part", "{ep} with {recompute=attention}", "use {recompute=full}"),
    together("lora experts computes", "LoRA with experts and axes other than {fsdp} and {dp}", "use {fsdp} or {dp}"),
    together("lora mla sharded", "LoRA on latent attention in a sharded layout", "use {dp} alone"),
    together("lora tp norm_over_heads", "LoRA with {tp} and a norm over all heads", "leave {tp} out"),
    *(
        together(f"lora {axis}", f"LoRA with {name}", "use {tp}, {fsdp}, {dp} or {pp}")
        for axis, name in {
            "cp": "{cp}",
            "ulysses": "{ulysses}",
            "zero": "{zero}",
            "sp": "{sp=True}",
            "megatron": "{tp_plan=megatron}",
        }.items()
    ),
    together("lora pp dp", "LoRA with {pp} and {dp}", "leave {dp} out"),
    together("lora pp tp fsdp", "LoRA with {pp}, {tp} and {fsdp}", "leave one of them out"),
    together("lora pp other_schedule", "LoRA with this {schedule}", "use {schedule=1f1b}"),
    together("lora fsdp fp32_weights", "LoRA with {fsdp} and {weights_dtype=fp32}", "leave {weights_dtype} out"),
    *TARGETS,
    together("lora bare_layers sharded", "LoRA on some layers only, in a sharded layout", "use {dp} alone"),
    together("lora nf4 sharded", "QLoRA in a sharded layout", "use {dp} alone, or {lora} without {weights_dtype=nf4}"),
    together("lora narrow", "LoRA with a vocabulary below twice the hidden size on a rank", "use a smaller {tp}"),
    together(
        "autocast sharded",
        "autocast in a sharded layout without {fsdp}",
        "{master_weights} fp32, as in Megatron-LM and DeepSpeed",
    ),
    together("packing computes", "{packing=True} with axes other than {fsdp} and {dp}", "leave {packing} out"),
    together("offload_activations pp", "{offload=activations} with {pp}", "leave one of them out"),
    together("eager cp", "{attention=eager} with {cp}", "use {attention=sdpa}"),
    together("eager ulysses", "{attention=eager} with {ulysses}", "use {attention=sdpa}"),
    together("eager sp", "{attention=eager} with {sp=True}", "use {attention=sdpa}"),
    together(
        "whole_tensor_optimizer sharded",
        "{of[whole_tensor_optimizer]} in a sharded layout",
        "use {dp} alone, or {optimizer=adamw}",
    ),
)
"""Combinations with a parallel layout."""

STEPS = (
    Unsupported(
        "no_class", "transformers has no class for it, and the training formula covers only transformers classes"
    ),
    Unsupported("other_class", "its transformers class runs a different model: {of[other_class]}"),
    Unsupported(
        "head_and_classes", "a language modeling loss together with a classification loss has not been measured"
    ),
    Unsupported("no_loss", "its class computes no loss"),
    Unsupported("other_loss", "the loss of this class has not been measured for {of[other_loss]}"),
    Unsupported("regression", "regression and multi-label losses have not been measured"),
    Unsupported("unverified_field", "its training step has not been measured with {of[unverified_field]}"),
    Unsupported("other_activation", "its training step has not been measured with {of[other_activation]}"),
    Unsupported("bidirectional_decoder", "its training step has not been measured with is_causal = false"),
    Unsupported("partial_patches", "its training step has not been measured with images of {of[partial_patches]}"),
    Unsupported("fp16 encoder_decoder", "its class clamps layer outputs in fp16, which has not been measured"),
    Unsupported("fp16 experts", "a training step with experts has been measured in bf16 and fp32 only"),
    Unsupported("quantized lora not_nf4", "adapters on quantized weights have been measured in nf4 only"),
    Unsupported("sdpa odd_heads", "sdpa has not been measured with {of[odd_heads]}"),
    Unsupported(
        "sdpa fp32 grouped_heads",
        "grouped-query attention in fp32 with sdpa is not covered: torch uses its math kernel, which saves all"
        " attention scores",
    ),
    Unsupported("packing no_packing", "{packing=True} needs a decoder with attention in every layer"),
    Unsupported("autocast adapters_16bit", "peft creates fp32 adapters for fp32 weights: leave {adapter_dtype} out"),
    *TARGETS,
    Unsupported(
        "lora experts no_attention_adapters",
        "with routed experts, MLP adapters are supported only together with attention adapters",
    ),
    Unsupported("lora one_layer", "adapters on a single layer are not supported"),
    Unsupported("lora small_vocabulary", "adapters need a vocabulary of at least twice the hidden size"),
    Unsupported("unmeasured", "{of[unmeasured]}"),
)
"""Combinations on one device, or in the computation of one rank."""
UNSUPPORTED = tuple(dict.fromkeys((*RECIPES, *LAYOUTS, *STEPS)))


# Features.

Test: TypeAlias = Callable[[LoadedModel, Recipe], object]


def _mesh(test: Callable[[Mesh], object]) -> Test:
    return lambda _, recipe: recipe.mesh is not None and test(recipe.mesh)


def _recipe(test: Callable[[Recipe], object]) -> Test:
    return lambda _, recipe: test(recipe)


def _config(test: Callable[[LoadedModel], object]) -> Test:
    return lambda model, _: test(model)


def _shape(test: Callable[[LoadedModel], object]) -> Test:
    return lambda model, _: model.once(test)


def _attention(test: Callable[[Attention], object]) -> Test:
    return _shape(lambda model: any(isinstance(one, Attention) and test(one) for one in model.architecture.parts()))


def _experts(test: Callable[[Experts], object]) -> Test:
    return _shape(lambda model: any(isinstance(one, Experts) and test(one) for one in model.architecture.parts()))


def computes_part(mesh: Mesh) -> bool:
    """True if ranks shard more than weights and sequences, so that each computes something different from one
    device."""
    return mesh.ranks != mesh.batch_shards or mesh.ep > 1


def _unsupported_part(model: LoadedModel, recipe: Recipe) -> str | None:
    mesh = recipe.mesh
    part = unsupported_part(model.architecture) if mesh is not None and mesh.ranks > mesh.pp else None
    if part is None or mesh is None:
        return None
    if mesh.ranks == mesh.dp and not mesh.zero:
        return None
    if recipe.lora is None and not computes_part(mesh) and shards_weights_only(model, mesh):
        return None
    reason = next((row.reason for row in matching(STEPS, ModelFeatures(model, recipe_of_rank(recipe)))), None)
    return reason or f"a parallel layout does not support {part}"


def _uneven(model: LoadedModel, recipe: Recipe) -> object:
    ledger, mesh = model.ledger, recipe.mesh
    return mesh and (replicated_heads(ledger, mesh) or {axis for axis, _ in padded_axes(ledger, mesh)} - {VOCABULARY})


def _narrow(model: LoadedModel, recipe: Recipe) -> bool:
    """True if a rank's vocabulary is smaller than that of models whose LoRA steps were measured."""
    embed, tp = model.architecture.embed, 1 if recipe.mesh is None else recipe.mesh.tp
    return not (isinstance(embed, Embedding) and embed.vocab >= SMALL_VOCABULARY * embed.hidden * tp)


def _lora(test: Callable[[LoadedModel, LoraTargets], object]) -> Test:
    return lambda model, recipe: recipe.lora and test(model, lora_targets(recipe.lora))


def _bare_layers(model: LoadedModel, targets: LoraTargets) -> bool:
    """True if layers of some kind have no adapter."""
    on = adapted(model, targets)
    kinds = (group for group in model.ledger.groups if group.numbers)
    return any(on.isdisjoint(line.path for line in group.lines) for group in kinds)


def _other_loss(model: LoadedModel) -> str | None:
    shape = model.architecture
    measured = shape.head is not None or shape.classes is None or model.config.task_head.auto in LOSSES
    return None if measured else model.family


def _regression(model: LoadedModel) -> bool:
    shape, problem = model.architecture, model.raw.get("problem_type")
    if shape.head is not None or shape.classes is None:
        return False
    return shape.classes.classes == 1 or problem not in (None, "single_label_classification")


def unverified_field(model: LoadedModel) -> str | None:
    """A field of the config that changes the step in ways that were not measured, with its value; None if none does."""
    fields, default = unverified_fields(model), UNVERIFIED_DEFAULTS.get(model.family, 0.0)
    every = [field for field in fields if _value(model.raw, field, default)]
    if not every:
        return None
    without = [option("set", f"{field}=0") for field in every]
    count = f"{' and '.join(without)} count{'s' if len(every) == 1 else ''} it without"
    absent = f", its class default: {count}" if _value(model.raw, every[0], None) is None else ""
    return f"{every[0]} = {json.dumps(_value(model.raw, every[0], default))}{absent}"


def _value(raw: Mapping[str, Any], field: str, absent: Any) -> Any:
    """The value of a field of a config, which can be in another field (`attn_config.attn_pdrop`)."""
    outer, _, inner = field.partition(".")
    if not inner:
        return raw.get(field, absent)
    return (raw.get(outer) or {}).get(inner, absent)


def _other_activation(model: LoadedModel) -> str | None:
    """The activation of an MLP that saves other tensors than those that were measured."""
    for part in (one for one in model.architecture.parts() if isinstance(one, (FeedForward, Experts))):
        others = () if isinstance(part, Experts) else ("relu2",) if part.gated else (*ACTIVATIONS, "xielu")
        if part.activation not in {*INPUT_SAVING, *others}:
            return f"the activation {part.activation}{' and a gate' if part.gated else ''}"
    return None


def bidirectional_decoder(model: LoadedModel) -> bool:
    """True for a decoder class that runs as an encoder: with another mask it saves other tensors."""
    return model.raw.get("is_causal") is False and "is_causal" in type(model.config).model_fields


def reads_images(model: LoadedModel) -> bool:
    """True for an image encoder, whose class trains on a single image size."""
    return isinstance(model.architecture.embed, Patches)


OTHER_IMAGES = "training supports only images of the config's size"


def of_another_size(model: LoadedModel, work: Workload) -> bool:
    """True for images of another size, which the class does not support in training."""
    return reads_images(model) and work.tokens != model.context


def _partial_patches(model: LoadedModel) -> str | None:
    side, patch = (getattr(model.config, name, 1) for name in ("image_size", "patch_size"))
    odd = reads_images(model) and side % patch
    return f"{side:,} pixels, not a multiple of the patch size {patch:,}" if odd else None


def _quantized(model: LoadedModel) -> bool:
    """True if the weights are quantized, except FP8, which is counted as converted to the dtype of the step."""
    quantization = model.raw.get("quantization_config")
    fp8 = isinstance(quantization, Mapping) and quantization.get("quant_method") == "fp8"
    return model.quantized and not fp8


def _odd_heads(model: LoadedModel, recipe: Recipe) -> str | None:
    """A phrase for a head size that torch's fused kernels do not support directly, with the sizes that they support."""
    for part in model.architecture.attentions:
        latent = isinstance(part, LatentAttention)
        widths = (part.query, part.value_dim) if isinstance(part, LatentAttention) else (part.axes()["H"],)
        heads = next((one for one in widths if one % STEP or (one > WIDEST and not latent)), None)
        if heads is None:
            continue
        measured = f"a head size of {heads}, only with multiples of {STEP} up to {WIDEST}"
        if recipe.in_fp32 or latent:  # the flash kernel does not run at all
            return measured
        if heads > WIDEST:
            return f"{measured}; torch's flash kernel does not support wider ones, so another kernel would run"
        return f"{measured}; torch pads others for its flash kernel, here to {-(-heads // STEP) * STEP}"
    return None


def _no_packing(model: LoadedModel) -> bool:
    """True if no attention mask can separate sequences that are packed into one row."""
    shape = model.architecture
    recurrent = any(name in mixers() for stack in shape.stacks for name, _ in stack.block.parts())
    return shape.encoder is not None or not predicts_next_token(shape) or recurrent


def _small_vocabulary(model: LoadedModel) -> bool:
    embed = model.architecture.embed
    return isinstance(embed, Embedding) and embed.vocab < SMALL_VOCABULARY * embed.hidden


FEATURES: Mapping[str, tuple[str, Test]] = {
    **{name: (label, _recipe(test)) for name, (label, test) in RECIPE_FEATURES.items()},
    **{name: (label, _mesh(test)) for name, (label, test) in MESH_FEATURES.items()},
    **{axis: (f"{{{axis}}}", _mesh(several(axis))) for axis in ("dp", "ulysses")},
    "zero": ("{zero}", _mesh(lambda mesh: mesh.zero)),
    "sharded": ("a layout other than {dp} alone", _mesh(lambda mesh: mesh.zero or mesh.ranks > mesh.dp)),
    "other_axes": ("another parallel axis", _mesh(lambda mesh: mesh.ranks > mesh.pp)),
    "other_schedule": ("a {schedule} other than 1f1b", _mesh(lambda mesh: mesh.schedule not in ("1f1b", "gpipe"))),
    "computes": ("more than {fsdp} and {dp}", _mesh(computes_part)),
    "uneven": ("sizes that {tp} does not divide", _uneven),
    "unsupported_part": ("a part without a training rule", _unsupported_part),
    "encoder": ("an encoder", _shape(lambda model: encodes(model.architecture))),
    "encoder_decoder": ("an encoder–decoder", _shape(lambda model: model.architecture.encoder is not None)),
    "parallel_sublayers": (
        "parallel sublayers",
        _shape(lambda model: any(map(in_parallel, model.architecture.stacks))),
    ),
    "odd_attention": (
        "attention with ALiBi, sinks or gates",
        _attention(lambda one: one.alibi or one.sinks or one.gate or one.scales.queries),
    ),
    "grouped_heads": ("grouped query heads", _attention(lambda one: one.group != 1)),
    "norm_over_heads": ("a norm over all heads", _shape(gathers_heads)),
    "mla": ("latent attention", _shape(lambda model: model.architecture.having(LatentAttention))),
    "experts": ("experts", _shape(routed)),
    "shared_expert": ("a shared expert", _experts(lambda one: one.shared_width is not None)),
    "expert_bias": ("experts with biases", _experts(lambda one: one.bias)),
    "narrow": ("a vocabulary below twice the hidden size on a rank", _narrow),
    "bare_layers": ("layers without an adapter", _lora(_bare_layers)),
    "no_class": ("no transformers class", _config(lambda model: not model.config.hf_modules)),
    "other_class": (
        "a config that the class interprets differently",
        _config(lambda model: model.config.hf_unsupported()),
    ),
    "head_and_classes": (
        "a language model's head with classes",
        _shape(lambda model: model.architecture.head is not None and model.architecture.classes is not None),
    ),
    "no_loss": (
        "a class without a loss",
        _shape(lambda model: model.architecture.head is None and model.architecture.classes is None),
    ),
    "other_loss": ("families with a different head", _config(_other_loss)),
    "regression": ("regression, or several labels", _config(_regression)),
    "unverified_field": ("a field that changes the step", _config(unverified_field)),
    "other_activation": ("an activation that was not measured", _shape(_other_activation)),
    "bidirectional_decoder": ("is_causal = false", _config(bidirectional_decoder)),
    "partial_patches": ("a size that is not a multiple of the patch", _config(_partial_patches)),
    "quantized": ("quantized weights, not in FP8", _config(_quantized)),
    "odd_heads": ("a head size that torch's kernels pad", _odd_heads),
    "no_packing": ("not a decoder with attention in every layer", _shape(_no_packing)),
    "not_linear": ("target modules that are not linear layers", _lora(not_linear)),
    "unknown_targets": ("target modules whose adapted layers are not known", _lora(unknown_targets)),
    "no_attention_adapters": (
        "no adapter on attention",
        _lora(lambda model, targets: not any(path.startswith(ATTENTION) for path in adapted(model, targets))),
    ),
    "one_layer": ("one layer", _shape(lambda model: sum(stack.count for stack in model.architecture.stacks) < 2)),
    "small_vocabulary": ("a vocabulary below twice the hidden size", _shape(_small_vocabulary)),
    "unmeasured": (
        "a family or recipe that was not measured",
        lambda model, recipe: bounds.refusal(model.family, recipe),
    ),
}
"""Features of the rows: label in the documentation, and the value for a model and a recipe,
false if they do not have the feature."""


class ModelFeatures(Features):
    """Features of a model and a recipe."""

    def __init__(self, model: LoadedModel, recipe: Recipe) -> None:
        super().__init__(FEATURES, model, recipe.for_model(model))


# Queries.


def _cases(model: LoadedModel, recipe: Recipe) -> Iterator[tuple[Unsupported, LoadedModel, Recipe]]:
    """Rows that apply, with their model and recipe: those of the recipe, of the layout, and of what one rank
    computes."""
    yield from ((row, model, recipe) for row in matching(RECIPES, Features(RECIPE_FEATURES, recipe)))
    if recipe.mesh is not None:
        yield from ((row, model, recipe) for row in matching(LAYOUTS, ModelFeatures(model, recipe)))
        model, recipe = model_of_rank(model, recipe.mesh), recipe_of_rank(recipe)
    yield from ((row, model, recipe) for row in matching(STEPS, ModelFeatures(model, recipe)))


def unsupported_layout(model: LoadedModel, recipe: Recipe) -> Unsupported | None:
    """The row that excludes a layout for a model or a recipe; None if it works. What one rank computes may still not be
    supported."""
    assert recipe.mesh is not None
    try:
        check_layout(model, recipe.mesh)
    except TfacctError as error:
        return Unsupported("layout", error.message.removeprefix(f"{model.name}: "), error.hint or "")
    return next(matching(LAYOUTS, ModelFeatures(model, recipe)), None)


def unsupported(model: LoadedModel, recipe: Recipe) -> Unsupported | None:
    """The row that excludes a model's training step; None if it is supported. Cached."""

    def excluded() -> Unsupported | None:
        by_layout = None if recipe.mesh is None else unsupported_layout(model, recipe)
        return by_layout or next((row for row, _, _ in _cases(model, recipe)), None)

    worded_for = spelled("shell", "Python")  # the reasons of the rows name options
    return model.ledger.once((unsupported, recipe, worded_for), excluded)


def refusal(model: LoadedModel, recipe: Recipe) -> str | None:
    """The reason why a step is not supported; None if it is supported."""
    found = unsupported(model, recipe)
    return None if found is None else found.reason


def on_all_devices(models: Sequence[LoadedModel], recipe: Recipe) -> Recipe:
    """The recipe on devices without a given layout: FSDP over all, or replicas if no model supports FSDP and one does
    those."""
    if recipe.mesh is None or recipe.mesh != Mesh(fsdp=recipe.mesh.fsdp):
        return recipe
    ways = recipe, replace(recipe, mesh=Mesh(dp=recipe.mesh.fsdp))
    return next((way for way in ways if any(unsupported(model, way) is None for model in models)), recipe)


def check_supported(model: LoadedModel, recipe: Recipe) -> None:
    """Raises TfacctError for a step that is not supported, with the nearest one that is."""
    if unsupported(model, recipe) is None:
        return
    if recipe.mesh is not None and unsupported(model, recipe_of_rank(recipe)) is None:
        check_layout(model, recipe.mesh)
    for row, one, of_rank in _cases(model, recipe):
        raise UsageError(f"{model.name}: {row.reason}", row.instead or _advice(one, of_rank))


def check_layout(model: LoadedModel, mesh: Mesh) -> None:
    """Raises TfacctError for a layout that the model's parts and sizes do not allow."""
    check_together(mesh)
    check_mesh(model, mesh)
    check_shardable(model, replace(mesh, sp=False))
    routing_bits(model, mesh, 16, train=True)


def recipe_of_rank(recipe: Recipe) -> Recipe:
    """The recipe of one rank's computation: on gathered parameters, in the dtype of the pass."""
    return replace(recipe, mesh=None, weights_dtype=None if recipe.shards_weights else recipe.weights_dtype)


def model_of_rank(model: LoadedModel, mesh: Mesh) -> LoadedModel:
    """The model on a rank of `tp` and `ep`."""
    return on_ranks(model.running("expanded"), mesh.tp, mesh.ep)


# The nearest step that is supported.


def _advice(model: LoadedModel, recipe: Recipe) -> str:
    """The hint for a model or a recipe."""
    if model.architecture.head is None and model.architecture.classes is None:
        return loss_advice(model)
    runs_class = recipe.mesh is None and bool(model.config.hf_modules) and model.family not in NOT_ON_META
    slow = any(part.hf_loop for part in model.architecture.parts())
    ways = (
        _nearest(model, recipe.for_model(model)),
        exact_advice(slow=slow) if runs_class else None,
    )
    return "; ".join(filter(None, ways)) or "no similar recipe is supported either"


def _nearest(model: LoadedModel, recipe: Recipe) -> str | None:
    """A hint with the nearest supported recipe; None if there is none."""
    if not model.config.hf_modules:
        return f"{option('exact', True)} runs the reference model on one device"
    other: AttentionKind = "eager" if recipe.attention == "sdpa" else "sdpa"
    if model.quantized and refusal(model.with_fields({"quantization_config": None}), recipe) is None:
        return f"{setting('quantization_config')} counts weights in {recipe.dtype}"
    tied = {"tie_word_embeddings": True}
    untied = "tie_word_embeddings" in (model.config.hf_unsupported() or "")
    if untied and refusal(model.with_fields(tied), recipe) is None:
        typed = spelled("--set tie_word_embeddings=true", "tie_word_embeddings=True")
        return f"{typed} counts it with a tied head, as its class runs it"
    on = [{"lora": names} for names in (on_attention(model, recipe.lora) if recipe.lora is not None else [])]
    packed = {"weights_dtype": NF4}
    ways: list[dict[str, Any]] = [
        {"attention": other},
        {"dtype": "bf16"},
        {"dtype": "fp32"},
        *([{"recompute": "full"}] if recipe.recomputed_modules else []),
        {"loss": "whole"},
        *([packed] if on and recipe.weights_dtype is None else []),
        *on,
        *({**names, **packed} for names in on if recipe.weights_dtype is None),
    ]
    for way in ways:
        if replace(recipe, **way) != recipe and refusal(model, replace(recipe, **way)) is None:
            return f"{' '.join(option(name, value) for name, value in way.items())} is supported"
    plain = Recipe()
    adapters = ["lora", "adapter_dtype", "lora_dropout", *(["weights_dtype"] if recipe.weights_dtype == NF4 else [])]
    for left_out in ["weights_dtype"], ["recompute"], ["gradient_accumulation"], adapters:
        way = {name: getattr(plain, name) for name in left_out if getattr(recipe, name) != getattr(plain, name)}
        if way and refusal(model, replace(recipe, **way)) is None:
            return f"the step is supported without {listed([option(name) for name in way])}"
    if recipe.mesh is not None and refusal(model, replace(recipe, mesh=None)) is None:
        return "only a single device is supported"
    return None


def on_attention(model: LoadedModel, text: str) -> list[str]:
    """The same rank on attention's linear layers, first together with those in `text`, then alone."""
    modules, targets = model.config.hf_module_paths(), lora_targets(text)
    layers = [layer.name(modules) for layer in linear_layers(model) if layer.path.startswith(ATTENTION)]
    both = (*targets.names, *layers) if targets.names else ()
    return [f"{targets.rank}:{','.join(dict.fromkeys(names))}" for names in (both, layers) if names]
