"""Megatron's kernels, as algebra: what a layer of a GPT keeps in 16 bits. Nobody measured it here.

Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (arXiv 2205.05198), section 4.1:
34·s·b·h + 5·a·s²·b bytes a layer, of which selective recomputation (section 5) leaves 34·s·b·h. Each line below says
which term of that sum it is, in bytes, with h = D, a = N, s = T and b = B; the paper's network is 4·h wide. As there,
statistics of norms and token ids are left out, and dropouts keep masks of a byte. Ends of the model are of section 4.3.
The paper's sums for tensor parallelism are not here.
"""

from __future__ import annotations

from collections.abc import Iterator

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import Attention, FeedForward, Norm
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.ledger import paths
from tfacct.ledger.kept import Kept, Pass, Run, Section, joined

PAIRS = "B K G T S"
GELU = frozenset(("gelu", "gelu_new", "gelu_pytorch_tanh"))
ATTENTION, NETWORK = (paths.in_every(paths.BLOCKS, name) for name in ("attn", "mlp"))


def fused(shape: Transformer, *, selective: bool) -> Pass:
    """The pass of a GPT. `selective`: scores, softmax and its dropout are run again. Raises ConfigError for a model
    that is none."""
    if (why := next(_unlike(shape), None)) is not None:
        raise ConfigError(f"Megatron's algebra is of a GPT: {why}")
    everywhere = {axis: size for part in shape.parts() for axis, size in part.axes().items()}
    blocks = tuple(
        Section(_run(_layer(selective)), everywhere, stack.count, numbers)
        for stack, numbers in zip(shape.stacks, shape.numbers(), strict=True)
    )
    front = _run(iter((Kept("embed.drop", "B T D", by=("embed.drop",), role="flag"),)))
    return Pass(Section(front, everywhere), blocks, Section(_run(_back()), everywhere))


def _layer(selective: bool) -> Iterator[Kept]:
    """One layer, in the paper's order: 11·s·b·h + 5·a·s²·b of attention, 19·s·b·h of the network, 4·s·b·h of norms."""
    at, softmax = ATTENTION, f"{ATTENTION}.softmax"
    weights = tuple(f"{at}.{which}_proj.weight" for which in "qkv")
    yield Kept(f"{at}_norm", "B T D", by=weights)  # 2sbh: what q, k and v read together
    yield Kept(f"{at}.q_proj", "B T N H", by=(f"{at}.scores",))  # 4sbh: both sides of the scores
    yield Kept(f"{at}.k_proj", "B S K H", by=(f"{at}.scores",))
    if not selective:  # 5as²b, which section 5 runs again
        yield Kept(softmax, PAIRS, by=(softmax,))  # 2as²b
        yield Kept(f"{softmax}.drop", PAIRS, by=(f"{softmax}.drop",), role="flag")  # as²b
        yield Kept(f"{softmax}.dropped", PAIRS, by=(f"{at}.values",))  # 2as²b
    yield Kept(f"{at}.v_proj", "B S K H", by=(f"{at}.values",))  # 2sbh: the values
    yield Kept(f"{at}.values", "B T N H", by=(f"{at}.o_proj.weight",))  # 2sbh: what the last product reads
    yield Kept(f"{at}.drop", "B T D", by=(f"{at}.drop",), role="flag")  # sbh
    yield Kept(f"{NETWORK}_norm", "B T D", by=(f"{NETWORK}.up_proj.weight",))  # 2sbh
    yield Kept(f"{NETWORK}.up_proj", "B T F", by=(f"{NETWORK}.act",))  # 8sbh: what GeLU reads
    yield Kept(f"{NETWORK}.act", "B T F", by=(f"{NETWORK}.down_proj.weight",))  # 8sbh
    yield Kept(f"{NETWORK}.drop", "B T D", by=(f"{NETWORK}.drop",), role="flag")  # sbh
    yield Kept(paths.in_every(paths.BLOCKS, "in"), "B T D", by=(f"{at}_norm",))  # 2sbh: the first norm
    yield Kept(paths.in_every(paths.BLOCKS, "mid"), "B T D", by=(f"{NETWORK}_norm",))  # 2sbh: the second


def _back() -> Iterator[Kept]:
    """Behind the layers: 4·s·b·h + 4·s·b·v, the last of it logits in fp32."""
    yield Kept("stream", "B T D", by=("final_norm",))  # 2sbh
    yield Kept("final_norm", "B T D", by=("lm_head.weight",))  # 2sbh
    yield Kept("loss.logits", "B T V", by=("loss",), role="full")  # 4sbv


def _unlike(shape: Transformer) -> Iterator[str]:
    """What a GPT of the paper has not, or has otherwise."""
    embed, head = shape.embed, shape.head
    if head is None or any((shape.encoder, shape.mtp, shape.segments, shape.bias, shape.pooler, shape.classes)):
        yield "a stack of blocks between a token table and a language model's head, no other parts"
    elif embed.width is not None or embed.scaled or head.transform or head.softcap or head.width is not None:
        yield "its token table and its head are plain"
    if shape.positions is None or not shape.positions.stored or not shape.positions.trained:
        yield "its positions are a table"
    if shape.embed_norm is not None or shape.final_norm is None or shape.final_norm.kind != "layer":
        yield "a LayerNorm behind its blocks, none in front of them"
    if not all(_plain(stack.block) for stack in shape.stacks):
        yield "each block is attention, then a network with GeLU, a LayerNorm in front of either"


def _plain(block: Block) -> bool:
    if block.order != "pre" or len(block.sublayers) != 2:
        return False
    attention, network = (sublayer.part for sublayer in block.sublayers)
    norms = [sublayer.norm for sublayer in block.sublayers]
    return (
        isinstance(attention, Attention)
        and isinstance(network, FeedForward)
        and all(isinstance(norm, Norm) and norm.kind == "layer" and not norm.less_one for norm in norms)
        and not any(sublayer.post_norm or sublayer.factor for sublayer in block.sublayers)
        and (not network.gated and network.norm is None and network.called and network.activation in GELU)
        and attention == Attention(
            hidden=attention.hidden,
            kv_heads=attention.kv_heads,
            group=1,
            head_dim=attention.head_dim,
            qkv_bias=attention.qkv_bias,
            out_bias=attention.out_bias,
        )
    )  # fmt: skip


def _run(lines: Iterator[Kept]) -> Run:
    return joined(Run(kept=tuple(lines)))
