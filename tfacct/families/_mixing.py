"""Shared by the families with short convolutions and with Mamba-2: what their classes run, and what its modules are
called."""

from collections.abc import Mapping

from tfacct.architecture.parts import Mamba2
from tfacct.ledger.einsum import chunks
from tfacct.ledger.lines import FLOPS_PER_MULTIPLY_ADD
from tfacct.ledger.workload import Workload

MAMBA2_EXTRA = (
    "it convolves more positions than there are new tokens, and drops what it padded; and it passes states from chunk"
    " to chunk by a product over all pairs of chunks"
)


def convolved_more(kernel: int, tokens: int, context: int) -> int:
    """Positions that a class convolves beyond the new tokens.

    It pads both ends of a prefill by kernel − 1, and what is shorter than the kernel to its length. In a decode step it
    convolves kernel + 1 tokens, so two positions. In front of a chunk it puts the last kernel tokens, and pads both
    ends.
    """
    if tokens == context:
        return max(kernel - tokens, 0) + kernel - 1
    return 1 if tokens == 1 else 2 * kernel - 1


def mamba2_paths(mixer: str) -> Mapping[str, str]:
    """Modules of Mamba-2, ours → the class's. What it multiplies itself is counted under the mixer."""
    own = ("conv", "chunk_scores", "chunk_values", "state_write", "state_read", "read_out")
    named = {"in_proj": "in_proj", "out_norm": "norm", "out_proj": "out_proj"}
    return {
        **{f"blocks.*.mamba.{name}": mixer for name in own},
        **{f"blocks.*.mamba.{name}": f"{mixer}.{theirs}" for name, theirs in named.items()},
    }


def mamba2_tensors(mixer: str) -> Mapping[str, str]:
    """Tensors of Mamba-2, ours → the class's."""
    named = {
        "conv.weight": "conv1d.weight",
        "conv.bias": "conv1d.bias",
        "step.bias": "dt_bias",
        "decay.weight": "A_log",
        "skip.weight": "D",
    }
    return {f"blocks.*.mamba.{name}": f"{mixer}.{theirs}" for name, theirs in named.items()}


def mamba2_more(kernel: int, work: Workload) -> Mapping[str, int]:
    """Positions that the class convolves beyond the new tokens."""
    return {"blocks.*.mamba.conv": convolved_more(kernel, work.tokens, work.context)}


def passed(mixer: Mamba2, work: Workload) -> Mapping[str, int]:
    """FLOPs by which the class passes states between chunks: each state, and the one before them, weighted for each."""
    count = chunks(work.tokens, work.context, mixer.chunk)
    pairs = (count + 1) ** 2 if count else 0
    states = work.batch * mixer.inner * mixer.state
    return {"blocks.*.mamba.state_write": FLOPS_PER_MULTIPLY_ADD * pairs * states}
