"""Proofs by symbolic shapes of single models, minutes each, and of a sample of all families. Kind: law."""

from typing import Any

import pytest

from tests.families import LOGITS, SHAPES, TINY
from tests.helpers.custom import EQUIVALENTS, LATENTS, hybrid, over
from tests.helpers.models import tiny
from tests.helpers.single_families import BODY
from tests.sweeps.seed import SEED
from tfacct.base.errors import UsageError
from tfacct.loading.model import load_model
from tfacct.reports.verify import prove
from tfacct.verify.sizes import Sizes

WEEKS = 9
"""Weekly runs in which every family is proven once."""
LATENTS_AND_HEADS = over(LATENTS, decoder__layers=2, decoder__first={"1": {"attention": {"heads": 6, "kv_heads": 2}}})
"""A layer of latent attention and one of grouped heads: N is a size of its own in one, and K · G in the other."""
FILES: dict[str, dict[str, Any]] = {
    "windows of several lengths": LOGITS["led windows of two sizes"],
    "a convolution and a gated part-rotated head": over(
        hybrid(short_convolution={"bias": True}), attention__gate=True, attention__rotary_dim=4
    ),
    "latents and heads": LATENTS_AND_HEADS,
    **{name: EQUIVALENTS[name] for name in ("gemma3_text", "deepseek_v3")},
}


def test_the_formula_is_proven_chunk_by_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sizes, "edges", lambda _: [])
    report = prove(tiny("qwen3_5_text", num_hidden_layers=3))
    assert report.agrees and "a symbol in one chunk of 64 tokens, in two and in three" in report.notes[-1]


@pytest.mark.parametrize(
    "command",
    [
        *("vit-base-patch16-224", "siglip-base-patch16-224-vision", "clip-vit-base-patch32-text", "pixtral-12b-vision"),
        "llama-3.2-1b --set " + BODY.format("LlamaForSequenceClassification"),
        "bert-base --set " + BODY.format("BertForSequenceClassification"),
    ],
)
def test_a_tower_or_a_body_proves(run, command: str) -> None:
    """Formula and reference model are one polynomial, a single class among the sizes that a symbol leaves out."""
    ran = run("verify", "--prove", *command.split())
    assert ran.code == 0 and "NOT" not in ran.out and ("Y = 1" in ran.out) == ("--set" in command)


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_proven(name: str) -> None:
    """DeltaNet and Mamba-2 are proven with their families: it takes minutes."""
    report = prove(load_model("mine", FILES[name]))
    assert report.agrees and len(report.rows) >= 9 and {row["evidence"] for row in report.rows} == {"no assumption"}


# Experts on one side alone: the proof sends the tokens of both sides to experts evenly, or not at all.
CUSTOM = [name for name in SHAPES if name.startswith("custom,") and "pre-norm" not in name]


@pytest.mark.parametrize("name", sorted([*TINY, *CUSTOM])[SEED // 7 % WEEKS :: WEEKS])
def test_a_family_is_proven(name: str) -> None:
    """A grid too large to compare is skipped, with its size."""
    try:
        report = prove(tiny(name))
    except UsageError as error:
        pytest.skip(error.message)
    assert report.agrees and len(report.rows) >= 9
