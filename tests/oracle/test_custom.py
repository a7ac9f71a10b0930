"""Custom models compared with the reference model and its counters. Kind: oracle."""

from dataclasses import replace

import pytest

from tests.helpers.custom import COMBINABLE, DELTA, LATENTS, LECTURE, MAMBA2, MIXED, hybrid, over
from tests.helpers.models import tiny
from tfacct.architecture.parts import Attention, FeedForward, Norm
from tfacct.ledger.workload import Request
from tfacct.loading.model import load_model
from tfacct.reports.verify import verify


@pytest.mark.parametrize("sizes", [(), ("--decode",), ("--tokens", "7"), ("--all-layers",), ("--source", "17")])
def test_the_lecture_verifies(run, sizes: tuple[str, ...]) -> None:
    ran = run("verify", LECTURE, "--batch", "16", *sizes)
    assert ran.code == 0 and "totals agree exactly" in ran.out, ran.out


def test_slips_in_parts_of_custom_models_are_seen() -> None:
    """verify sees a ledger that runs idle modules, multiplies distances, or stores each shared norm."""

    def red(kind: type, **wrong: object) -> set[str]:
        own = tiny("custom")
        shape = own.architecture.mapped(lambda part: replace(part, **wrong) if isinstance(part, kind) else part)
        report = verify([replace(own, ledger=shape.ledger())], Request(ctx=9))
        return {row["what"] for row in report.rows if row["verdict"] != "ok"}

    assert red(Attention, score_function="distance") == set()
    assert "blocks.0.attn.scores" in red(Attention, score_function="product")
    assert "encoder.blocks.0.mlp.up_proj" in red(FeedForward, called=True)
    assert "blocks.0.shared_norm.weight" in red(Norm, shared=False)
    assert "blocks.0.mlp.norm.weight" in red(FeedForward, norm=None)


REORDERED = {
    "model": {"vocab": 227, "hidden": 48, "context": 29, "positions": "rotary", "tied": True},
    "attention": {"heads": 6, "kv_heads": 2, "head_dim": 10},
    "feed_forward": {"width": 71, "gated": True},
    "norm": {"kind": "layer", "order": "reordered"},
    "encoder": {
        "layers": 3, "pattern": ["wide", "idle", "plain"],
        "wide": {"feed_forward": {"width": 73}}, "idle": {"feed_forward": {"called": False}},
    },
    "decoder": {"layers": 2, "first": {"1": {"attention": {"bias": True, "window": 5}}}},
}  # fmt: skip


@pytest.mark.parametrize("file", [MIXED, REORDERED, LATENTS], ids=["mixed", "reordered", "latent"])
def test_they_verify(file: dict) -> None:
    assert verify([load_model("mine", file)], Request(ctx=9)).agrees


KDA = {"heads": 3, "key_dim": 12, "decay_rank": 7, "chunk": 16}


def test_every_mixer_in_one_model_verifies() -> None:
    own = hybrid(**{**COMBINABLE, "mamba2": MAMBA2, "delta_net": DELTA, "delta_net__kda": KDA})
    own = over(own, attention__gate=True, attention__rotary_dim=4, attention__bias=True)
    assert verify([load_model("mine", own)], Request(ctx=29)).agrees
