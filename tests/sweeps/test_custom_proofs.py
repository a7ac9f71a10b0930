"""Custom models: proofs by symbolic shapes. Kind: law."""

import pytest

from tests.helpers.custom import LATENTS, TWINS, over
from tfacct.loading.model import load_model

BESIDE = over(LATENTS, decoder__layers=2, decoder__first={"1": {"attention": {"heads": 6, "kv_heads": 2}}})
"""A latent beside heads that share keys: N is a size of its own in one block, and K · G in the other."""


@pytest.mark.parametrize(
    "file", [BESIDE, TWINS["gemma3_text"], TWINS["deepseek_v3"]], ids=["beside", "gemma", "deepseek"]
)
def test_they_are_proven(file: dict) -> None:
    pytest.importorskip("torch")
    from tfacct.reports.verify import prove

    report = prove(load_model("mine", file))
    assert report.agrees and len(report.rows) >= 9
