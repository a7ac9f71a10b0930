"""Mamba-2: what several families draw and spell alike."""

from tests.families._sizes import Distinct


def axis_names(of: Distinct, heads: tuple[int, int, int], state: int, kernel: int, chunk: int) -> dict[str, int]:
    """Sizes of a mixer by letter: of its groups, the heads in each, and a head."""
    Km, Gm, Hm = heads
    Nm, vectors = Km * Gm, 2 * Km * state
    sizes = {"Km": Km, "Gm": Gm, "Nm": Nm, "Hm": Hm, "Ns": state, "Kc": kernel, "Dm": Nm * Hm + vectors}
    return {**sizes, "Di": 2 * Nm * Hm + vectors + Nm, "Pc": chunk, "Qc": chunk, "Nc": -(-of.T // chunk), "Tr": 0}
