"""Paths of lines in a model. The one module that makes them and takes them apart.

    encoder.blocks.17.attn.q_proj.weight
    side    stack  number part leaf

What stands once has no stack: `embed.weight`, `lm_head`. `*` is the number of every block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

from tfacct.ledger.lines import Matmul
from tfacct.ledger.workload import ENTRIES, HALVES, HEAVY_ENTRIES, OVERLAPPING, TILES

ENCODER = "encoder"
BLOCKS, MTP = "blocks", "mtp"
"""The stacks: a model's blocks, and its multi-token prediction heads."""
EVERY = "*"
NORMS = "norms"
"""Heading that norms are summed under, wherever they stand."""
PROJECTIONS, SCORES = "attn_projections", "attn_scores_values"
"""Components of self-attention: products with a weight, and products of queries, keys and values."""


class Path(NamedTuple):
    """Fields of a path, each empty if the path has none. `leaf` is the rest: `q_proj`, `q_proj.weight`, or nothing."""

    side: str
    stack: str
    number: str
    part: str
    leaf: str

    def __str__(self) -> str:
        return ".".join(filter(None, self))

    @property
    def heading(self) -> str:
        """Heading that the path is summed under: its part's name, that of the part whose result is added, one for all
        norms, one for a whole encoder or all MTP heads."""
        if self.side or self.stack == MTP:
            return self.side or self.stack
        return NORMS if self.part.endswith("_norm") else self.part.removesuffix("_add")


@cache
def parse(path: str) -> Path:
    """Return the fields of a path.

    >>> parse("blocks.17.attn.q_proj.weight")
    Path(side='', stack='blocks', number='17', part='attn', leaf='q_proj.weight')

    `*` is the number of every block:

    >>> parse("encoder.blocks.*.mlp").number
    '*'

    Embeddings and head stand in no stack:

    >>> parse("lm_head").stack
    ''

    `str` puts the path together again:

    >>> str(parse("blocks.17.attn.q_proj.weight")._replace(number="3", leaf="k_proj"))
    'blocks.3.attn.k_proj'
    """
    words = path.split(".")
    side = words.pop(0) if words[0] == ENCODER and len(words) > 1 else ""
    stack, number = (words.pop(0), words.pop(0)) if words[0] in (BLOCKS, MTP) and len(words) > 1 else ("", "")
    part, *leaf = words or ("",)
    return Path(side, stack, number, part, ".".join(leaf))


def in_every(stack: str, name: str) -> str:
    """Path of a part in every block of a stack: `blocks.*.attn`."""
    return str(Path("", stack, EVERY, name, ""))


def in_encoder(path: str) -> str:
    """Path on the encoder's side."""
    return f"{ENCODER}.{path}"


def numbered(path: str, number: int | str) -> str:
    """Path in one block, from a path in every block."""
    return path.replace(EVERY, str(number))


def looked_up(table: Mapping[str, str], path: str) -> str | None:
    """What a table has for a path, with its number: for this block, or for every block."""
    found = table.get(path) or table.get(starred(path))
    return None if found is None else numbered(found, parse(path).number)


def starred(path: str) -> str:
    """Path in every block, from a path in one block."""
    parsed = parse(path)
    return str(parsed._replace(number=EVERY)) if parsed.number else path


def among(path: str, names: Sequence[str]) -> bool:
    """True if what a path names inside its block begins with one of these names: `attn.q_proj`, or `mlp` for all of a
    part."""
    at = parse(path)
    inside = str(at._replace(side="", stack="", number=""))
    return bool(names and at.number) and f"{inside}.".startswith(tuple(f"{name}." for name in names))


def repeated(path: str) -> bool:
    """True if the path stands for every block of a stack, each with a tensor or product of its own."""
    return parse(path).number == EVERY


def short(path: str) -> str:
    """Path as a table shows it: `attn.q_proj` for `blocks.*.attn.q_proj`."""
    parsed = parse(path)
    if parsed.number != EVERY:
        return path
    stack = parsed.stack if parsed.stack == MTP else ""
    return str(parsed._replace(stack=stack, number=""))


def module_of(tensor: str) -> str:
    """Path of the module that holds a tensor: `lm_head` for `lm_head.weight`."""
    return tensor.rpartition(".")[0]


def holder_of(tensor: str) -> str:
    """Path of the part that holds a tensor's module: `blocks.*.attn` for `blocks.*.attn.q_proj.weight`.

    For `embed` and `lm_head` it is the module itself.
    """
    return tensor.rsplit(".", 2)[0]


def name_of(tensor: str) -> str:
    """Name of a tensor in its module: `weight`, `bias`."""
    return tensor.rpartition(".")[2]


@cache
def heading_of(path: str) -> str:
    """Heading that a path is summed under: attn, cross, mlp, norms, embed, lm_head …, or `mtp` and `encoder` for all
    that stands in them."""
    return parse(path).heading


def component_of(line: Matmul) -> str:
    """Component that a product is summed under: its heading, except that self-attention is divided in two.

    The axes decide, not the name: a product of queries with keys, or of weights with values, has both T and S, or
    T and tokens of a source or compressed keys, or windows.
    """
    heading = heading_of(line.path)
    if heading != "attn":
        return heading
    every = set(line.einsum.every)
    keys = {"S", "J", ENTRIES, HEAVY_ENTRIES} & every
    return SCORES if ("T" in every and keys) or {TILES, OVERLAPPING, HALVES} & every else PROJECTIONS
