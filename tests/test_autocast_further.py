"""Steps under autocast of decoders whose blocks are no Llama's, written out operation by operation."""

import pytest

from tests.test_autocast_written import check
from tfacct import load
from tfacct.base.errors import UsageError

pytest.importorskip("transformers")
FAMILIES = ("bloom", "falcon", "gpt_neo", "gpt_neox", "phi", "phi3")


@pytest.mark.parametrize(
    ("family", "seed"),
    [
        ("bloom", 183),  # the caller has what values were weighted by in the block in front
        ("bloom", 100),
        ("falcon", 101),
        ("falcon", 156),  # an index's gradient is made twice
        ("falcon", 220),  # sums behind a bias are not done with its gradient
        ("falcon", 235),  # one head of keys is cast, then copied
        ("gpt_neo", 101),  # queries and keys are cast to fp32, and back
        ("gpt_neo", 104),
        ("gpt_neox", 100),  # an activation whose tanh is written out
        ("gpt_neox", 103),
        ("phi", 100),  # the head's bias is cast, and stays for the loss
        ("phi", 101),
        ("phi3", 101),  # whole heads turn
        ("phi3", 102),
    ],
)
def test_a_step_of_other_decoders_under_autocast_is_its_classes_own(family: str, seed: int) -> None:
    assert check(family, seed)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_many_steps_of_other_decoders(family: str) -> None:
    done = [check(family, seed) for seed in range(100, 300)]
    assert sum(done) >= 150


def test_norms_of_heads_that_were_not_written_out_are_refused() -> None:
    with pytest.raises(UsageError, match="no rule"):
        load("phi-2", qk_layernorm=True).train(ctx=64, weights_dtype="fp32")
