"""The transformers model of the same config, on meta, as a witness: nobody here wrote it."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode

transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]


def build(config: Mapping[str, Any], head: str = "CausalLM") -> Any:
    """The model of a config with one of transformers' heads, without numbers."""
    fields = {name: value for name, value in config.items() if name != "model_type"}
    made = transformers.AutoConfig.for_model(config["model_type"], **fields)
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        built = getattr(transformers, f"AutoModelFor{head}").from_config(
            made, attn_implementation="eager", **({"experts_implementation": "batched_mm"} if _routed(made) else {})
        )
        return built.eval()


def _routed(config: Any) -> bool:
    """Whether it has experts: the class counts them right in one way of running them only."""
    return any(getattr(config, name, None) for name in ("num_local_experts", "num_experts", "n_routed_experts"))


def run(
    model: Any, *, batch: int, tokens: int, context: int, source: int = 0, new_source: int = 0
) -> tuple[dict[str, int], dict[str, int]]:
    """FLOPs that each module computes itself, and elements of each layer's cache, after `tokens` new of `context`.

    Of `source` tokens `new_source` are read in this step: all, or none.
    """
    old = context - tokens

    def given(count: int) -> Any:
        return torch.zeros(batch, count, dtype=torch.long, device="meta")

    before: dict[str, Any] = {}
    if source and new_source:
        before = {"input_ids": given(source)}
    if old:
        first = model(**({"input_ids": given(source)} if source else {}), **_tokens(source, given(old)))
        before |= {"past_key_values": first.past_key_values}
        before |= {"encoder_outputs": (first.encoder_last_hidden_state,)} if source and not new_source else {}
    with FlopCounterMode(display=False) as counter:
        result = model(**before, **_tokens(source, given(tokens)))
    root = type(model).__name__
    totals = {
        path.removeprefix(f"{root}.").removeprefix(root): sum(counts.values())
        for path, counts in counter.get_flop_counts().items()
        if path != "Global"
    }
    own: Counter[str] = Counter(totals)
    for path, total in totals.items():
        if path:
            own[parent(path, totals)] -= total
    return {path: count for path, count in own.items() if count}, _cached(result.get("past_key_values"))


def _tokens(source: int, tokens: Any) -> dict[str, Any]:
    """What the class calls the new tokens: with an encoder its own name is the source's."""
    return {"decoder_input_ids" if source else "input_ids": tokens}


def _cached(past: Any) -> dict[str, int]:
    """Elements of what each layer keeps: its own keys and values, then those of the source."""
    if past is None:
        return {}
    sides = (getattr(past, "self_attention_cache", past), getattr(past, "cross_attention_cache", None))
    found: dict[str, int] = {}
    for first, cache in zip((0, 2), sides, strict=True):
        for number, layer in enumerate(cache.layers if cache is not None else ()):
            found |= {
                f"blocks.{number}.{first}": layer.keys.numel(),
                f"blocks.{number}.{first + 1}": layer.values.numel(),
            }
    return found


def kept(states: Mapping[str, int]) -> dict[str, int]:
    """Cached elements by our paths, as the class's: the first, the second, … thing that each block keeps."""
    found: dict[str, int] = {}
    seen: Counter[str] = Counter()
    for path, count in states.items():
        block = ".".join(path.split(".")[:2])
        found[f"{block}.{seen[block]}"] = count
        seen[block] += 1
    return found


def parent(path: str, known: Mapping[str, int]) -> str:
    """The nearest module above `path` that was counted."""
    while "." in path:
        path = path.rpartition(".")[0]
        if path in known:
            return path
    return ""


def parameters(model: Any) -> dict[str, int]:
    """Elements of each parameter by its name; a tied one once."""
    return {name: parameter.numel() for name, parameter in model.named_parameters()}


def renamed(
    counts: Mapping[str, int], table: Mapping[str, str], tensors: Mapping[str, str] | None = None
) -> dict[str, int]:
    """Counts by our paths as counts by the class's: several of ours may be one of theirs.

    `table` maps our module paths to theirs, with `*` for a block's number; a tensor's path ends in its name, but for
    those that `tensors` maps.
    """
    theirs: Counter[str] = Counter()
    for path, count in counts.items():
        starred, number = _starred(path)
        module, _, tensor = starred.rpartition(".")
        if tensors and starred in tensors:
            name = tensors[starred]
        elif tensor in ("weight", "bias"):
            name = f"{table[module]}.{tensor}"
        else:
            name = table[starred]
        theirs[name.replace("*", number)] += count
    return dict(theirs)


def _starred(path: str) -> tuple[str, str]:
    """A path with `*` for its block's number, and the number."""
    side, blocks, rest = path.rpartition("blocks.")
    if not blocks:
        return path, ""
    number, _, rest = rest.partition(".")
    return f"{side}blocks.*.{rest}", number
