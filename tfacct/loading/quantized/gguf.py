"""llama.cpp's mixtures: `Q4_K_M` is a rule that gives every tensor a type of its own, by its name and its block.

Source: `llama_tensor_get_type_impl`, `tensor_allows_quantization` and `tensor_type_fallback` of llama.cpp
(`src/llama-quant.cpp`), without an importance matrix; block sizes of `ggml-common.h`. Tensors alone: a file's header,
with its vocabulary, comes on top.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tfacct.architecture.parts import Attention, Experts, FeedForward
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.ledger import formats, paths
from tfacct.ledger.formats import Format
from tfacct.ledger.storage import MATRICES, Role, Storage, Stored, width
from tfacct.loading.model import LoadedModel
from tfacct.loading.quantized.names import Modules

TYPES: dict[str, tuple[int, int]] = {
    "Q4_0": (32, 18),
    "Q5_0": (32, 22),
    "Q5_1": (32, 24),
    "Q8_0": (32, 34),
    "Q2_K": (256, 84),
    "Q3_K": (256, 110),
    "Q4_K": (256, 144),
    "Q5_K": (256, 176),
    "Q6_K": (256, 210),
    "F16": (1, 2),
}
"""Types → numbers of a block, and its bytes."""
FALLBACK = {"Q2_K": "Q4_0", "Q3_K": "Q4_0", "Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}
"""Types for rows that no block of 256 divides."""
MIXES = {
    "q2_k": "Q2_K",
    "q3_k_s": "Q3_K",
    "q3_k_m": "Q3_K",
    "q3_k_l": "Q3_K",
    "q4_0": "Q4_0",
    "q4_k_s": "Q4_K",
    "q4_k_m": "Q4_K",
    "q5_0": "Q5_0",
    "q5_k_s": "Q5_K",
    "q5_k_m": "Q5_K",
    "q6_k": "Q6_K",
    "q8_0": "Q8_0",
}
"""Mixtures → the type of most tensors."""
EIGHT_EXPERTS, SEVENTY = 8, 80
"""Experts of Mixtral, and blocks of a Llama or Qwen2 of 70B: both have rules of their own."""


class Model(NamedTuple):
    """What the rules ask of a model."""

    mix: str
    blocks: int
    experts: int
    group: int
    tied: bool
    seventy: bool


def more_bits(block: int, blocks: int) -> bool:
    """True for the first eighth of the blocks, the last, and every third between them."""
    eighth = blocks // 8
    return block < eighth or block >= 7 * blocks // 8 or (block - eighth) % 3 == 2


def _of_values(model: Model, block: int) -> str | None:
    found = {
        "q2_k": "Q4_K" if model.group >= 4 else "Q3_K",
        "q3_k_m": "Q5_K" if block < 2 else "Q4_K",
        "q3_k_l": "Q5_K",
        "q4_k_s": "Q5_K" if block < 4 else None,
        "q4_k_m": "Q6_K" if more_bits(block, model.blocks) else None,
        "q5_k_m": "Q6_K" if more_bits(block, model.blocks) else None,
    }.get(model.mix)
    if model.seventy and (found or MIXES[model.mix]) in ("Q3_K", "Q4_K"):
        found = "Q5_K"
    return "Q8_0" if model.experts == EIGHT_EXPERTS else found


def _of_keys(model: Model, _: int) -> str | None:
    return "Q8_0" if model.experts == EIGHT_EXPERTS else None


def _of_output(model: Model, _: int) -> str | None:
    if model.experts == EIGHT_EXPERTS:
        return "Q5_K" if model.mix in ("q2_k", "q3_k_s", "q3_k_m", "q4_k_s", "q4_k_m") else None
    return {"q2_k": "Q3_K", "q3_k_m": "Q4_K", "q3_k_l": "Q5_K"}.get(model.mix)


def _of_down(model: Model, block: int) -> str | None:
    return {
        "q2_k": "Q3_K",
        "q3_k_m": "Q5_K" if block < model.blocks // 16 else "Q4_K",
        "q3_k_l": "Q5_K",
        "q4_k_s": "Q5_K" if block < model.blocks // 8 else None,
        "q4_k_m": "Q6_K" if more_bits(block, model.blocks) else None,
        "q5_k_m": "Q6_K" if more_bits(block, model.blocks) else None,
    }.get(model.mix)


RULES: dict[str, Callable[[Model, int], str | None]] = {
    "v_proj": _of_values,
    "k_proj": _of_keys,
    "o_proj": _of_output,
    "down_proj": _of_down,
}
"""Matrices of a block → their type, None for that of most."""


def mix(subject: LoadedModel, name: str) -> Storage:
    """Storage of a model in one of llama.cpp's mixtures. Raises UsageError for a model whose tensors it names
    otherwise."""
    _check(subject, name)
    model = _model(subject, name)
    usual = MIXES[name]

    def choose(tensor: Stored) -> Format | None:
        if tensor.role == "other" or (tensor.role == "table" and tensor.path != "embed.weight"):
            return None
        if tensor.role == "head" or (tensor.role == "table" and model.tied):
            fits = tensor.inputs % TYPES[usual][0] == 0
            return _type("Q8_0" if not fits or usual == "Q8_0" else "Q6_K", tensor)
        if tensor.role == "table":
            return _type(usual, tensor)
        leaf, number = paths.module_of(tensor.path).rpartition(".")[2], paths.parse(tensor.path).number
        rule = RULES.get(leaf)
        return _type((rule(model, int(number)) if rule else None) or usual, tensor)

    about = "llama.cpp's mixture of types, without an importance matrix"
    everything: frozenset[Role] = MATRICES | {"head", "table"}
    return Storage(name, choose, width("fp32"), everything, rounds=True, about=about, by_block=True)


def _type(name: str, tensor: Stored) -> Format:
    """Format of a tensor's type, or of that which its rows fit."""
    for one in (name, FALLBACK.get(name, name), "F16"):
        numbers, size = TYPES[one]
        if tensor.inputs % numbers == 0:
            return formats.blocks(one, numbers, size, "")
    raise AssertionError(name)  # F16 fits any row


def _model(subject: LoadedModel, name: str) -> Model:
    shape = subject.architecture
    attention = next(iter(shape.attentions))
    experts = max((part.experts for part in shape.parts() if isinstance(part, Experts)), default=1)
    group, blocks = attention.heads // attention.kv_heads, sum(stack.count for stack in shape.stacks)
    tied = shape.head is not None and shape.head.tied
    seventy = blocks == SEVENTY and (subject.family == "qwen2" or (subject.family == "llama" and group > 1))
    return Model(name, blocks, experts, group, tied, seventy)


def _check(subject: LoadedModel, name: str) -> None:
    """Refuse models whose tensors llama.cpp names, joins or leaves otherwise."""
    shape, known = subject.architecture, (Attention, FeedForward, Experts)
    why = None
    if shape.encoder is not None or shape.head is None or not subject.keeps:
        why = "it is no decoder with a language model's head"
    elif Modules(subject).ahead():
        why = "its files hold several matrices as one, which llama.cpp's versions give different types"
    elif other := next((part for part in _inside(subject) if not isinstance(part, known)), None):
        why = f"the rules for {type(other).__name__} are not known here"
    if why:
        raise UsageError(f"{subject.name}: {name} is llama.cpp's mixture, and {why}", f"another {option('dtype')}")


def _inside(subject: LoadedModel) -> Iterator[object]:
    for stack in subject.architecture.every_stack:
        yield from (sublayer.part for sublayer in stack.block.sublayers)
