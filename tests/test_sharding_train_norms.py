"""Norms without parameters among ranks that divide the stream's tokens."""

from __future__ import annotations

import pytest

import tfacct
from tests.test_sharding_train import peak_on_one_rank, saved_on_one_rank
from tfacct.accounts.sharding.mesh import Mesh
from tfacct.ledger.workload import Workload
from tfacct.reports.training import trained
from tfacct.training.recipe import Recipe

OLMO = {
    "model_type": "olmo",
    "hidden_size": 96,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "intermediate_size": 200,
    "vocab_size": 1000,
    "num_hidden_layers": 2,
    "tie_word_embeddings": False,
}


@pytest.mark.parametrize("tokens", [16, 80])
def test_norms_without_a_scale_are_gathered_as_others_are(tokens: int) -> None:
    mesh = Mesh(2, sp=True)
    one = trained(tfacct.load(OLMO).loaded, Workload(tokens, tokens, 2), Recipe(optimizer="none", mesh=mesh))
    assert one.step.kept() == saved_on_one_rank(OLMO, mesh, 2, tokens, "bf16")
    assert one.peak.total == peak_on_one_rank(OLMO, mesh, 2, tokens, "bf16", {})
    assert not one.exact


def test_a_published_model_with_such_norms_is_answered() -> None:
    rank, whole = (tfacct.load("olmo-1b").train(ctx="1k", **mesh) for mesh in ({"tp": 8, "sp": True}, {}))
    assert whole.saved_bytes / 8 < rank.saved_bytes < whole.saved_bytes


@pytest.mark.parametrize("batch", [2, 3])
def test_what_a_norm_gave_is_there_while_a_block_runs_again(batch: int) -> None:
    """Where gradients of earlier batches are there, a block's second forward pass is fuller than its backward pass."""
    config = {**OLMO, "model_type": "llama", "hidden_size": 16, "num_attention_heads": 4, "head_dim": 8}
    config |= {"intermediate_size": 16, "vocab_size": 16, "num_hidden_layers": 1}
    mesh, how = Mesh(2, sp=True), {"recompute": "full", "gradient_accumulation": 2}
    one = trained(tfacct.load(config).loaded, Workload(16, 16, batch), Recipe(optimizer="none", mesh=mesh, **how))
    assert one.peak.name == "block 0, forward again" and one.exact
    assert one.peak.total == peak_on_one_rank(config, mesh, batch, 16, "bf16", how)
