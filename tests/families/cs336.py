"""CS336's model: no class stands behind it, and no field that counts has a default."""

from tests.families._sizes import Distinct, Sized, of_heads

TINY = {
    "model_type": "cs336", "vocab_size": 83, "context_length": 41, "num_layers": 2, "d_model": 48, "num_heads": 8,
    "d_ff": 89,
}  # fmt: skip


def sized(of: Distinct) -> Sized:
    return of_heads(of, "vocab_size d_model num_layers num_heads d_ff", context_length=of.P)
