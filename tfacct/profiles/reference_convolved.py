"""What the reference model keeps of queries and keys that pass convolutions."""

from __future__ import annotations

from collections.abc import Iterator

from tfacct.ledger.kept import Kept


def convolved(at: str) -> Iterator[Kept]:
    """Which tokens both convolutions see, and these, unfolded; what is made of one length, its own, and its keys where
    learned numbers multiply them."""
    for name, tokens, kernel in (("conv_again", "Ks", "Kq"), ("conv", "T", "Kq"), ("mixing_conv", "T", "Kw")):
        yield Kept(f"{at}.{name}.places", f"{tokens} {kernel}", by=(f"{at}.{name}",), role="index")
        yield Kept(f"{at}.{name}.windows", f"B {tokens} Nj H {kernel}", by=(f"{at}.{name}.weight",))
    for which, heads in (("q", "N"), ("k", "K")):
        norm, rows = f"{at}.{which}_norm", f"B T {heads}"
        yield Kept(f"{norm}.read", f"{rows} H", by=(norm,))
        yield Kept(f"{norm}.lengths", rows, by=(norm,), times=3)
    yield Kept(f"{at}.k_norm", "B T K H", by=(f"{at}.k_factor",))
