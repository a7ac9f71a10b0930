"""Configs of distinct sizes, and those sizes by letter: what several families spell alike."""

from __future__ import annotations

import random
from typing import TypeAlias

from tests.families._drawing import Fields

Sized: TypeAlias = tuple[Fields, dict[str, int]]
"""A config, and its sizes by letter."""


class Distinct:
    """Numbers for all letters, no two equal, and a few switches."""

    def __init__(self, family: str, seed: int) -> None:
        draw = random.Random(f"{family} {seed}")
        self.seed = seed
        self.K, self.G, half, self.D, self.F, self.V, self.L, self.P, self.B, *more = draw.sample(range(2, 60), 22)
        one, other, self.J, self.Le, *self.more = more
        self.T, self.S = sorted((one, other))
        self.H = 2 * half
        self.on = [draw.random() < 0.5 for _ in range(3)]

    def axis_names(self, names: str) -> dict[str, int]:
        """The numbers of some letters."""
        return {name: getattr(self, name) for name in names}


def grouped(of: Distinct, **fields: object) -> Sized:
    """Llama's relatives: key heads, groups, and a head size of its own."""
    sizes = {**of.axis_names("KGHDLBTS"), "N": of.K * of.G, "F": of.F + 200, "V": of.V + 300}
    config = {
        "vocab_size": sizes["V"], "hidden_size": of.D, "num_hidden_layers": of.L, "num_attention_heads": of.K * of.G,
        "num_key_value_heads": of.K, "head_dim": of.H, "intermediate_size": sizes["F"],
        "tie_word_embeddings": of.on[0],
    }  # fmt: skip
    return {**config, **fields}, sizes


def of_heads(of: Distinct, names: str, **fields: object) -> Sized:
    """Heads that share the hidden size, each with its own keys. `names` are those of V, D, L and N, and of F."""
    sizes = {**of.axis_names("KHFVLBTS"), "G": 1, "N": of.K, "D": of.K * of.H}
    config = dict(zip(names.split(), (of.V, sizes["D"], of.L, of.K, of.F), strict=False))
    return {**config, **fields}, sizes


def parts_of_hidden(of: Distinct, **fields: object) -> Sized:
    """Grouped heads that share the hidden size."""
    sizes = {**of.axis_names("KGHFVLBTS"), "N": of.K * of.G, "D": of.K * of.G * of.H}
    config = {"vocab_size": of.V, "hidden_size": sizes["D"], "num_hidden_layers": of.L}
    config |= {"num_attention_heads": of.K * of.G, "tie_word_embeddings": of.on[0]}
    return {**config, **fields}, sizes


def reading(of: Distinct, names: str, **fields: object) -> Sized:
    """An encoder and a decoder. `names` are those of heads, widths and layers of both."""
    sizes = {**of.axis_names("KHDFVLBTSJ"), "G": 1, "N": of.K, "I": 0, "Le": of.Le}
    config = dict(zip(names.split(), (of.K, of.K, of.F, of.F, of.Le, of.L), strict=True))
    return {"vocab_size": of.V, **config, **fields}, sizes


def bart_like(of: Distinct, rows: int, **fields: object) -> Sized:
    """Tables of so many rows more than positions; heads share the hidden size, other ones on each side."""
    names = " ".join(f"encoder_{field} decoder_{field}" for field in ("attention_heads", "ffn_dim", "layers"))
    other, width, hidden = of.more[0], of.more[1], of.K * of.more[0] * of.H
    config, sizes = reading(of, names, d_model=hidden, max_position_embeddings=of.P, **fields)
    config |= {"encoder_attention_heads": other, "encoder_ffn_dim": width}
    sizes |= {"D": hidden, "P": of.P + rows, "H": other * of.H}
    return config, {**sizes, "Kenc": other, "Nenc": other, "Henc": of.K * of.H, "Fenc": width}


def sized_latent(of: Distinct, *, ranked: bool) -> Sized:
    """Latent attention, with a latent for the queries too or not; experts and a shared network in every block."""
    R, Rq, Hp, Hr, Hv, *more = of.more
    sizes = {**of.axis_names("DVLBTS"), "N": of.K, "R": R, "Hp": Hp, "Hr": 2 * Hr, "Hv": Hv}
    sizes |= {"Rs": R + 2 * Hr, "Hq": Hp + 2 * Hr, **({"Rq": Rq} if ranked else {})}
    config = {
        "vocab_size": of.V, "hidden_size": of.D, "num_hidden_layers": of.L, "num_attention_heads": of.K,
        "num_key_value_heads": of.K, "first_k_dense_replace": 0, "q_lora_rank": sizes.get("Rq"), "kv_lora_rank": R,
        "qk_nope_head_dim": Hp, "qk_rope_head_dim": 2 * Hr, "v_head_dim": Hv, "attention_bias": of.on[1],
        "latent_attention": ("expanded", "absorbed", "unpacked")[of.seed % 3],
    }  # fmt: skip
    count = 1 + of.seed % 3
    config, sizes = routed((config, sizes), more, "n_routed_experts", "moe_intermediate_size")
    return {**config, "n_shared_experts": count}, {**sizes, "Fs": count * sizes["Fe"]}


def routed(sized: Sized, numbers: list[int], experts: str, width: str) -> Sized:
    """Experts in place of the network, and the names of how many there are and of their width."""
    config, sizes = sized
    (A, E), Fe = sorted(numbers[:2]), numbers[2]
    sizes = {axis: size for axis, size in sizes.items() if axis != "F"} | {"A": A, "E": E, "Fe": Fe}
    return {**config, experts: E, "num_experts_per_tok": A, width: Fe}, sizes
