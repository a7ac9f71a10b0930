"""What the reference model keeps of attention and networks of narrow tokens."""

from __future__ import annotations

from collections.abc import Iterator

from tfacct.architecture.parts import NarrowAttention, NarrowNetworks
from tfacct.ledger.kept import Kept
from tfacct.profiles.reference_attention import attention
from tfacct.profiles.reference_lines import Lines

SPEC = "B T Db"


def narrow_attention(own: Lines, at: str, reads: str, part: NarrowAttention) -> Iterator[Kept]:
    """Products in front, attention, and what is scaled behind each."""
    yield Kept(reads, "B T D", by=tuple(f"{at}.{name}.weight" for name in ("input", "shared", "v_proj")))
    for name in ("input", "shared"):
        yield own.scaled(f"{at}.{name}_norm", f"{at}.{name}", SPEC)
    yield Kept(f"{at}.shared_norm", SPEC, by=(f"{at}.q_proj.weight", f"{at}.k_proj.weight"))
    _, *scores = attention(own, at, reads, part)  # whose first is what it reads
    yield from scores
    yield own.scaled(f"{at}.narrow_norm", f"{at}.narrow_add", SPEC)


def narrow_networks(own: Lines, at: str, reads: str, part: NarrowNetworks) -> Iterator[Kept]:
    """Each network, what is scaled behind it, and what the last product reads."""
    for number in range(part.count):
        network = f"{at}.networks.{number}"
        yield Kept(reads, SPEC, by=(f"{network}.up_proj.weight",))
        down = (f"{network}.down_proj.weight",)
        yield from own.activated(f"{network}.act", f"{network}.up_proj", part.activation, "B T F", down)
        yield own.scaled(f"{network}.norm", f"{network}.add", SPEC)
        reads = f"{network}.norm"
    yield Kept(reads, SPEC, by=(f"{at}.output.weight",))
