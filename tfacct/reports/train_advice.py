"""Advice where a training step is not counted: the nearest one that is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tfacct.base.spelling import option, setting, spelled
from tfacct.loading.model import LoadedModel
from tfacct.reports.lora import on_attention
from tfacct.reports.train_exact import slow_words
from tfacct.reports.training import refusal
from tfacct.training.adapters import parameter_words
from tfacct.training.bounds import AttentionKind, exact_advice
from tfacct.training.recipe import FP32, NF4, Recipe


def advice(subject: LoadedModel, recipe: Recipe) -> str:
    """Advice for a model that is refused, with the number of its adapters' parameters where that is known."""
    if subject.architecture.head is None and subject.architecture.classes is None:
        return "name a class with a head in architectures"  # no other class computes a loss
    runs_class = recipe.mesh is None and bool(subject.config.hf_modules)
    ways = (
        parameter_words(subject, recipe),
        _nearest(subject, recipe.for_model(subject)),
        exact_advice(slow=slow_words([subject]) is not None) if runs_class else None,
    )
    return "; ".join(filter(None, ways)) or "docs/models.md lists the recipes that are answered"


def _nearest(subject: LoadedModel, recipe: Recipe) -> str | None:
    """The nearest recipe that is counted; None if there is none."""
    if not subject.config.hf_modules:
        return f"{option('exact', True)} runs the reference model on one device"
    other: AttentionKind = "eager" if recipe.attention == "sdpa" else "sdpa"
    if subject.quantized and refusal(subject.with_fields({"quantization_config": None}), recipe) is None:
        return f"{setting('quantization_config')} counts weights in {recipe.dtype}"
    tied = {"tie_word_embeddings": True}
    if subject.config.hf_unsupported() and refusal(subject.with_fields(tied), recipe) is None:
        typed = spelled("--set tie_word_embeddings=true", "tie_word_embeddings=True")
        return f"{typed} counts it with a tied head, as its class runs it"
    bare, packed = {"lora": None, "adapter_dtype": FP32, "lora_dropout": 0.0}, recipe.weights_dtype == NF4
    adapters = [option("lora"), option("weights_dtype", NF4)] if packed else [option("lora")]
    adapters += [option("adapter_dtype")] * (recipe.adapter_dtype != FP32) + [option("lora_dropout")] * (
        recipe.lora_dropout > 0
    )
    without: dict[str, tuple[bool, dict[str, Any]]] = {
        option("weights_dtype", FP32): (recipe.autocast, {"weights_dtype": None}),
        option("recompute"): (recipe.recompute != "none", {"recompute": "none"}),
        option("gradient_accumulation"): (recipe.accumulates, {"gradient_accumulation": 1}),
        _listed(adapters): (recipe.lora is not None, {**bare, "weights_dtype": None} if packed else bare),
    }
    unpacked = recipe.lora is not None and recipe.weights_dtype is None
    named = on_attention(subject, recipe.lora) if recipe.lora is not None else []
    ways: dict[str, tuple[bool, dict[str, Any]]] = {
        f"{option('attention', other)} is counted": (True, {"attention": other}),
        f"{option('dtype', 'bf16')} is counted": (recipe.dtype != "bf16", {"dtype": "bf16"}),
        f"{option('recompute', 'full')} is counted": (bool(recipe.recomputed_modules), {"recompute": "full"}),
        f"{option('loss', 'whole')} is counted": (recipe.loss == "chunked", {"loss": "whole"}),
        f"{option('weights_dtype', NF4)} is counted": (unpacked, {"weights_dtype": NF4}),
        **{f"{option('lora', on)} is counted": (True, {"lora": on}) for on in named},
        **{
            f"{option('lora', on)} {option('weights_dtype', NF4)} is counted": (
                unpacked,
                {"lora": on, "weights_dtype": NF4},
            )
            for on in named
        },
        **{f"the step is counted without {names}": way for names, way in without.items()},
        "the step of one device alone is counted": (recipe.mesh is not None, {"mesh": None}),
    }
    for advice, (given, changed) in ways.items():
        if given and refusal(subject, replace(recipe, **changed)) is None:
            return advice
    return None


def _listed(names: list[str]) -> str:
    """Options of which all are left out."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
