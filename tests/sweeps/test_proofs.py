"""Proofs by symbolic shapes of single models, minutes each, and of a sample of all families. Kind: law."""

import pytest

from tests.families import TINY
from tests.families.rare import LED
from tests.helpers.custom import hybrid, over
from tests.helpers.models import tiny
from tests.helpers.single_families import BODY
from tests.sweeps.seed import SEED
from tfacct.base.errors import UsageError
from tfacct.loading.model import load_model
from tfacct.reports.verify import prove
from tfacct.verify.sizes import Sizes

WEEKS = 9
"""Weekly runs in which every family is proven once."""


def test_the_formula_is_proven_chunk_by_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from tfacct.reports.verify import prove
    from tfacct.verify.sizes import Sizes

    monkeypatch.setattr(Sizes, "edges", lambda _: [])
    report = prove(tiny("qwen3_5_text", num_hidden_layers=3))
    assert report.agrees and "a symbol in one chunk of 64 tokens, in two and in three" in report.notes[-1]


@pytest.mark.parametrize(
    "name",
    ["vit-base-patch16-224", "siglip-base-patch16-224-vision", "clip-vit-base-patch32-text", "pixtral-12b-vision"],
)
def test_a_tower_proves(run, name: str) -> None:
    pytest.importorskip("torch")
    ran = run("verify", "--prove", name)
    assert ran.code == 0 and "NOT" not in ran.out


def test_windows_of_several_lengths_are_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sizes, "edges", lambda _: [])
    report = prove(load_model("small", LED.TWO))
    assert report.agrees and {row["evidence"] for row in report.rows} == {"no assumption"}


def test_a_convolution_and_a_gated_part_rotated_head_are_proven() -> None:
    """DeltaNet and Mamba-2 are proven with their families: it takes minutes."""
    pytest.importorskip("torch")
    from tfacct.reports.verify import prove

    own = hybrid(short_convolution={"bias": True})
    report = prove(load_model("mine", over(own, attention__gate=True, attention__rotary_dim=4)))
    assert report.agrees and len(report.rows) >= 9


def test_a_body_proves(run) -> None:
    """Formula and reference model are one polynomial, a single class among the sizes that a symbol leaves out."""
    pytest.importorskip("torch")
    ran = run("verify", "--prove", "llama-3.2-1b", "--set", BODY.format("LlamaForSequenceClassification"))
    assert ran.code == 0 and "Y = 1" in ran.out and "NOT" not in ran.out


def test_an_encoders_body_proves(run) -> None:
    pytest.importorskip("torch")
    assert run("verify", "--prove", "bert-base", "--set", BODY.format("BertForSequenceClassification")).code == 0


@pytest.mark.parametrize("family", sorted(TINY)[SEED // 7 % WEEKS :: WEEKS])
def test_a_family_is_proven(family: str) -> None:
    """A grid too large to compare is skipped, with its size."""
    pytest.importorskip("torch")
    try:
        report = prove(tiny(family))
    except UsageError as error:
        pytest.skip(error.message)
    assert report.agrees and len(report.rows) >= 9
