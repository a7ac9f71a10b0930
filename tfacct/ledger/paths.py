"""Paths of lines in a model. This is the only module that builds and parses them.

    encoder.blocks.17.attn.q_proj.weight
    side    stack  number part leaf

Paths outside the layers have no stack: `embed.weight`, `lm_head`. The number `*` is every layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

from tfacct.ledger.lines import Matmul
from tfacct.ledger.workload import ENTRIES, HALVES, HEAVY_ENTRIES, OVERLAPPING, TILES

ENCODER = "encoder"
BLOCKS, MTP = "blocks", "mtp"
"""Stacks: the layers of a model, and its multi-token prediction heads."""
EVERY = "*"
NORMS = "norms"
"""Heading that all norms are summed under."""
PROJECTIONS, SCORES = "attn_projections", "attn_scores_values"
"""Components of self-attention: matmuls with a weight, and matmuls of queries, keys and values."""


class Path(NamedTuple):
    """Fields of a path, empty if missing. `leaf` is the rest: `q_proj`, `q_proj.weight`, or empty."""

    side: str
    stack: str
    number: str
    part: str
    leaf: str

    def __str__(self) -> str:
        return ".".join(filter(None, self))

    @property
    def heading(self) -> str:
        """Heading that the path is summed under: the part (also for its residual addition), `norms` for all norms,
        `encoder` or `mtp` for everything in them."""
        if self.side or self.stack == MTP:
            return self.side or self.stack
        return NORMS if self.part.endswith("_norm") else self.part.removesuffix("_add")


@cache
def parse(path: str) -> Path:
    """Return the fields of a path.

    >>> parse("blocks.17.attn.q_proj.weight")
    Path(side='', stack='blocks', number='17', part='attn', leaf='q_proj.weight')

    The number `*` is every layer:

    >>> parse("encoder.blocks.*.mlp").number
    '*'

    Embeddings and head have no stack:

    >>> parse("lm_head").stack
    ''

    `str` joins the fields:

    >>> str(parse("blocks.17.attn.q_proj.weight")._replace(number="3", leaf="k_proj"))
    'blocks.3.attn.k_proj'
    """
    words = path.split(".")
    side = words.pop(0) if words[0] == ENCODER and len(words) > 1 else ""
    stack, number = (words.pop(0), words.pop(0)) if words[0] in (BLOCKS, MTP) and len(words) > 1 else ("", "")
    part, *leaf = words or ("",)
    return Path(side, stack, number, part, ".".join(leaf))


def in_every(stack: str, name: str) -> str:
    """Path of a part in every layer of a stack: `blocks.*.attn`."""
    return str(Path("", stack, EVERY, name, ""))


def in_encoder(path: str) -> str:
    """Path in the encoder."""
    return f"{ENCODER}.{path}"


def numbered(path: str, number: int | str) -> str:
    """Path in one layer, from a path with `*`."""
    return path.replace(EVERY, str(number))


def looked_up(table: Mapping[str, str], path: str) -> str | None:
    """Entry of a table for a path or its `*` form, with the layer number filled in."""
    found = table.get(path) or table.get(starred(path))
    return None if found is None else numbered(found, parse(path).number)


def starred(path: str) -> str:
    """Path with `*`, from a path in one layer."""
    parsed = parse(path)
    return str(parsed._replace(number=EVERY)) if parsed.number else path


def among(path: str, names: Sequence[str]) -> bool:
    """True if the path inside its layer begins with one of these names: `attn.q_proj`, or `mlp` for a whole part."""
    at = parse(path)
    inside = str(at._replace(side="", stack="", number=""))
    return bool(names and at.number) and f"{inside}.".startswith(tuple(f"{name}." for name in names))


def repeated(path: str) -> bool:
    """True if the path has `*`: it is in every layer of a stack."""
    return parse(path).number == EVERY


def short(path: str) -> str:
    """Path as shown in tables: `attn.q_proj` for `blocks.*.attn.q_proj`."""
    parsed = parse(path)
    if parsed.number != EVERY:
        return path
    stack = parsed.stack if parsed.stack == MTP else ""
    return str(parsed._replace(stack=stack, number=""))


def module_of(tensor: str) -> str:
    """Path of the module of a tensor: `lm_head` for `lm_head.weight`."""
    return tensor.rpartition(".")[0]


def holder_of(tensor: str) -> str:
    """Path of the part of a tensor: `blocks.*.attn` for `blocks.*.attn.q_proj.weight`.

    For `embed` and `lm_head` this is the module itself.
    """
    return tensor.rsplit(".", 2)[0]


def name_of(tensor: str) -> str:
    """Last name of a tensor's path: `weight`, `bias`."""
    return tensor.rpartition(".")[2]


@cache
def heading_of(path: str) -> str:
    """Heading that a path is summed under: attn, cross, mlp, norms, embed, lm_head …, or `mtp` and `encoder` for
    everything in them."""
    return parse(path).heading


def component_of(line: Matmul) -> str:
    """Component that a matmul is summed under: its heading, with self-attention split in two.

    The axes decide, not the name: matmuls of scores and values have T and S, T and source tokens, T and compressed
    keys, or windows.
    """
    heading = heading_of(line.path)
    if heading != "attn":
        return heading
    every = set(line.einsum.every)
    keys = {"S", "J", ENTRIES, HEAVY_ENTRIES} & every
    return SCORES if ("T" in every and keys) or {TILES, OVERLAPPING, HALVES} & every else PROJECTIONS
