"""What LayerNorms of the transformers classes keep: torch's own, or written out in fp32 where they have no shift."""

from __future__ import annotations

from tfacct.architecture.parts import Norm
from tfacct.ledger.kept import Held, Kept, Moment, Role, Run

STREAM_WIDE = Held("B T D")


def layer(at: str, reads: str, part: Norm, *, full: bool, written: bool = False) -> Run:
    """torch's LayerNorm is one operation; without parameters it runs in fp32. `written`: with a scale alone it is not
    torch's, but written out.

    `full`: the pass is in fp32, where the copy is the stream itself.
    """
    if part.learned == "scale" and written:
        return _written(at)
    plain = part.learned == "none"
    # Its input's gradient needs the same tensors as its weight's, whether that is trained or not.
    by = (f"{at}.normed",) if plain else (f"{at}.normed", f"{at}.weight")
    role: Role = "upcast" if plain else "work"
    read = Kept(f"{at}.upcast" if plain and not full else reads, "B T D", by=by, role=role)
    shifted = (Kept(f"{at}.plus_one", "D", by=by),) if part.less_one else ()
    wide = (Held("B T D", "copy"),) if plain else ()
    return Run(
        by,
        (
            read,
            Kept(f"{at}.mean", "B T", by=by, role="full"),
            Kept(f"{at}.deviation", "B T", by=by, role="full"),
            *shifted,
        ),
        (Moment(by[-1], (Held("B T D", "full" if plain else "work", 2),)),),
        (Moment(by[-1], (STREAM_WIDE, *wide)),),
    )


def _written(at: str) -> Run:
    """CohereLayerNorm: its input less the mean, twice, the root of the variance, a scale in fp32."""
    names = ("square", "root", "scale", "multiplied", "weight")
    square, root, scale, multiplied, weight = (f"{at}.{name}" for name in names)
    return Run(
        (square, root, scale, multiplied, weight),
        (
            Kept(f"{at}.centred", "B T D", by=(square,), role="full"),
            Kept(f"{at}.rms", "B T", by=(root, scale), role="full"),
            Kept(f"{at}.centred_again", "B T D", by=(scale,), role="full"),
            Kept(f"{at}.scaled", "B T D", by=(weight,), role="full"),
            Kept(f"{at}.scales", "D", by=(multiplied,), role="copy"),  # for what it scales, frozen or not
        ),
        (
            Moment(weight, (Held("B T D", "full", 3),), done=False),
            Moment(weight, (Held("B T D", "full", 3), Held("D", "full")), done=False, after=True),
            Moment(square, (Held("B T D", "full", 4),)),
        ),
        (Moment(weight, (Held("B T D", "full"), Held("B T D", "cast"), Held("B T", "full", 2))),),
    )


def layer_of_slices(at: str, heads: str, beside: tuple[Held, ...], *, apart: bool) -> Run:
    """torch's LayerNorm of queries or keys that are slices of one product, which stays for it. `beside`: gradients that
    wait meanwhile. `apart`: what else is kept of values is a copy."""
    attention, by = at.rpartition(".")[0], (f"{at}.normed", f"{at}.weight")
    one = Held(f"B T {heads} H")
    whole = (("q_proj", "B T N H"), ("k_proj", "B S K H"), ("v_made" if apart else "v_proj", "B S K H"))
    return Run(
        by,
        (
            *(Kept(f"{attention}.{which}", spec, by=by) for which, spec in whole),
            Kept(f"{at}.mean", f"B T {heads}", by=by, role="full"),
            Kept(f"{at}.deviation", f"B T {heads}", by=by, role="full"),
        ),
        (Moment(by[-1], (one, one, *beside)),),
    )
