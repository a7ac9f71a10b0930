"""Names of tensors in code that nobody here wrote: which stand in blocks, and what their words say of them."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

WRAPPED = re.compile(r"^(_orig_mod\.|module\.)+")
"""What torch.compile and wrappers for several devices put in front of every name."""
ATTENTION, NETWORK, CROSS, NORM = "attn", "mlp", "cross", "norm"

PARTS: Sequence[tuple[str, frozenset[str]]] = (
    (
        CROSS,
        frozenset(
            """
    cross cross_attn crossattention encdecattention encoder_attn multihead_attn cross_attention
    """.split()
        ),
    ),
    (
        ATTENTION,
        frozenset(
            """
    attn attention self_attn self_attention sa mha selfattention temporal_block
    """.split()
        ),
    ),
    (
        NETWORK,
        frozenset(
            """
    mlp ff ffn ffwd feed_forward feedforward ff_layer linear1 linear2 fc1 fc2 block_sparse_moe
    """.split()
        ),
    ),
)
"""Words of modules, by the part of a block that they mean."""
ROLES: Mapping[str, frozenset[str]] = {
    role: frozenset(words.split())
    for role, words in {
        "q_proj": "q q_proj query wq to_q q_lin q_attn query_proj q_linear w_q linear_q",
        "k_proj": "k k_proj key wk to_k k_lin key_proj k_linear w_k linear_k",
        "v_proj": "v v_proj value values wv to_v v_lin value_proj v_linear w_v linear_v",
        "qkv": "qkv qkv_proj c_attn in_proj wqkv query_key_value to_qkv attn_proj_in",
        "kv": "kv kv_proj to_kv c_kv",
        "o_proj": "o o_proj out_proj to_out output_proj c_o w_o out_lin",
        "gate_proj": "gate gate_proj w_gate",
        "up_proj": "up up_proj c_fc fc fc1 linear1 lin1 dense_h_to_4h wi w_up fc_in",
        "gate_up": "gate_up gate_up_proj w12 wi_fused",
        "down_proj": "down down_proj fc2 linear2 lin2 dense_4h_to_h w_down fc_out",
        "router": "router gate_inp",
        "q_norm": "q_norm q_layernorm norm_q",
        "k_norm": "k_norm k_layernorm norm_k",
    }.items()
}
"""Words for a product, by what it is called here."""
OUT = frozenset("proj c_proj out dense wo output o".split())
"""Words for the way back to the stream, out of attention or of a network."""
LLAMA = {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}
"""Names of Llama's first code; of two matrices alone the first goes up."""
LITGPT = {"fc_1": "gate_proj", "fc_2": "up_proj"}
TABLE = frozenset(
    """
    wte embed embedding embeddings tok_embeddings embed_tokens token_embedding tok_emb token_emb emb
    """.split()
)
POSITIONS = frozenset(
    """
    wpe pos pos_emb pos_embed position_embedding position_embeddings embed_positions pos_embedding
    """.split()
)
HEAD = frozenset("lm_head head output to_logits unembed embed_out out_head logits".split())
BIASES = re.compile(r"(^|_)(bias|beta|b)$")
SCALES = frozenset("g gamma scale".split())


class Place(NamedTuple):
    """Where a tensor stands: its name with `*` for the block, and behind it, for what there are several of in a block.

    `block`: the block's number, None outside; `container`: the name up to it.
    """

    template: str
    block: int | None = None
    container: str = ""


class Says(NamedTuple):
    """What a name says: the part and role it has, empty where nothing is known; whether it is a bias, or a norm's; and
    whether it is `sure` of the role, or has a word for it that means other things too."""

    part: str
    role: str
    bias: bool
    norm: bool
    sure: bool = True


def places(shapes: Mapping[str, tuple[int, ...]], blocks: int) -> dict[str, Place]:
    """Places of tensors by name. A list is one of blocks if it has as many as the model, or several that are alike."""
    children: dict[str, dict[int, dict[str, tuple[int, ...]]]] = defaultdict(lambda: defaultdict(dict))
    for name, shape in shapes.items():
        words = name.split(".")
        for at, word in enumerate(words):
            if word.isdecimal():
                children[".".join(words[:at])][int(word)][".".join(words[at + 1 :])] = shape
    found: dict[str, Place] = {}
    for name in shapes:
        words = name.split(".")
        numbers = [at for at, word in enumerate(words) if word.isdecimal()]
        block = next((at for at in numbers if _is_stack(children[".".join(words[:at])], blocks)), None)
        if block is None:
            found[name] = Place(name)
            continue
        template = list(words)
        template[block] = _star(children[".".join(words[:block])], int(words[block]), blocks)
        for at in numbers:
            if at > block and _is_bundle(children[".".join(words[:at])]):
                template[at] = "*"
                break
        found[name] = Place(".".join(template), int(words[block]), ".".join(words[: block + 1]))
    return found


def _is_stack(children: Mapping[int, Mapping[str, tuple[int, ...]]], blocks: int) -> bool:
    if len(children) == blocks:
        return True
    alike = Counter(frozenset(tensors) for tensors in children.values())
    return any(count > 1 and any("." in name for name in names) for names, count in alike.items())


def _star(children: Mapping[int, Mapping[str, tuple[int, ...]]], number: int, blocks: int) -> str:
    """What stands for the number of a block: `2*+1` where each block is two entries of the list, and this its second.

    >>> _star({n: {("norm.g", "to_q.weight")[n % 2]: (8,)} for n in range(6)}, 3, blocks=3)
    '2*+1'
    """
    each, rest = divmod(len(children), blocks)
    if each < 2 or rest:
        return "*"
    alike = [other for other, tensors in children.items() if set(tensors) == set(children[number])]
    return f"{each}*+{number % each}" if alike == list(range(number % each, len(children), each)) else "*"


def _is_bundle(children: Mapping[int, Mapping[str, tuple[int, ...]]]) -> bool:
    """True of several things of the same shapes, one behind the other: experts, or heads that are modules."""
    first = next(iter(children.values()))
    every = sorted(children) == list(range(len(children)))
    return len(children) > 1 and every and all(tensors == first for tensors in children.values())


def says(template: str, beside: Iterable[str]) -> Says:
    """What a name says of a tensor. `beside`: the last words of the modules in the same part, for names of two uses.

    >>> says("layers.*.feed_forward.w2.weight", ["w1", "w2", "w3"])
    Says(part='mlp', role='down_proj', bias=False, norm=False, sure=True)
    >>> says("transformer.h.*.attn.c_proj.bias", [])
    Says(part='attn', role='o_proj', bias=True, norm=False, sure=False)
    """
    lowered = [word for word in template.lower().split(".") if word]
    star = next((at for at, word in enumerate(lowered) if "*" in word), -1)
    inside = lowered[star + 1 :]
    leaf, modules = inside[-1], [word for word in inside[:-1] if not word.isdecimal() and word != "*"]
    last = modules[-1] if modules else ""
    if leaf.startswith("in_proj_"):
        last = "in_proj"
    bias = BIASES.search(leaf) is not None
    part = next((part for part, words in PARTS if words.intersection(modules)), "")
    role = next((role for role, words in ROLES.items() if last in words), "")
    others = set(beside)
    if role == "gate_proj" and last == "gate" and "experts" in others:
        role = "router"
    if not role and last in LLAMA and {"w1", "w2"} <= others:
        role = LLAMA[last] if "w3" in others else {"w1": "up_proj", "w2": "down_proj"}.get(last, "")
        part = part or NETWORK
    if not role and last in LITGPT:
        role, part = LITGPT[last] if "fc_2" in others else "up_proj", part or NETWORK
    if role == "up_proj" and last == "fc" and "fc_2" in others:
        role = ""
    sure = not (last in OUT and part and not role)
    if not sure or (role == "o_proj" and part == NETWORK):
        role = "down_proj" if part == NETWORK else "o_proj"
    norm = "norm" in last or last.startswith("ln") or (leaf in SCALES and not role)
    if norm and not part and "post" not in last:
        part = next((part for part, words in PARTS if words.intersection(last.split("_"))), "")
    if star < 0:
        words = set(modules) | {leaf}
        tables = ((POSITIONS, "pos_embed"), (TABLE, "embed"), (HEAD, "lm_head"))
        role = next((name for known, name in tables if words & known), "") if not norm else ""
        part = ""
    if role not in ("q_norm", "k_norm") and norm:
        role = ""
    return Says(part, role, bias, norm, sure)
