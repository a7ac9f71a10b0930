"""Layers that foresee further tokens: counted on request, against the classes' own and the reference model."""

import pytest

from tests.conftest import TINY
from tfacct import load
from tfacct.ledger.workload import Workload
from tfacct.loading.model import subject
from tfacct.witness import checks as witness
from tfacct.witness.renamed import renamed

TWO = {"mtp": True, "num_nextn_predict_layers": 2}


def test_they_are_not_counted_unless_asked_for() -> None:
    plain, asked = load("deepseek-v3"), load("deepseek-v3", mtp=True)
    assert plain.params().total == 671_026_404_352
    # One block of experts: 256 + 1 networks of 3 · 7,168 · 2,048, the router, latent attention and its norms; two
    # norms, a product from 2 · 7,168 and a last norm.
    network = 3 * 7168 * 2048
    attention = 7168 * 1536 + 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 + 512 * 128 * 256 + 128 * 128 * 7168
    block = 257 * network + 7168 * 256 + attention + 2 * 7168
    assert asked.params().total - plain.params().total == block + 2 * 7168 * 7168 + 3 * 7168
    per_token = {"blocks.*.attn": 0, "mtp": 0}
    for line in asked.flops(ctx=4096).lines:
        if line["path"].startswith("mtp."):
            per_token["mtp"] += line["flops"]
    assert per_token["mtp"] == asked.flops(ctx=4096).total - plain.flops(ctx=4096).total > 0


@pytest.mark.parametrize("family", ["deepseek_v3", "deepseek_v32"])
def test_their_parameters_are_the_classs(family: str) -> None:
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    import torch

    from tfacct.reference import hf

    ours = subject("mine", TINY[family], TWO)
    raw = {name: value for name, value in ours.raw.items() if name != "mtp"}
    built = hf.build(raw)
    built.config.num_mtp_layers = 2  # V3.2's config has it by the older name alone
    if family == "deepseek_v32":
        built.config.mtp_layer_types = built.config.layer_types[-1:] * 2
        built.config.mtp_mlp_layer_types = built.config.mlp_layer_types[-1:] * 2
    with torch.device("meta"):
        theirs = transformers.modeling_layers.MtpModel(built, 2)
    by_layer: dict[str, int] = {}
    for name, parameter in theirs.named_parameters():
        if name.startswith("layers."):
            by_layer[name] = parameter.numel()
    paths = {
        **{path: name.replace("model.layers.*.", "layers.*.mtp_block.") for path, name in ours.config.hf_paths.items()},
        "blocks.*.join.row_norm": "layers.*.enorm",
        "blocks.*.join.stream_norm": "layers.*.hnorm",
        "blocks.*.join.proj": "layers.*.eh_proj",
        "blocks.*.head_norm": "layers.*.post_norm",
    }
    tensors = {
        path: name.replace("model.layers.*.", "layers.*.mtp_block.") for path, name in ours.config.hf_tensors.items()
    }
    mine = {
        path.replace("mtp.", "blocks."): count
        for path, count in ours.ledger.parameters(unfolded=True).items()
        if path.startswith("mtp.")
    }
    assert renamed(mine, paths, tensors) == by_layer != {}


def test_v32s_have_an_indexer_of_their_own() -> None:
    """V3's block and what an indexer has: 64 heads of 128 out of the queries' latent, a key of 128 with a norm, and a
    weight for each head."""
    plain, asked = load("deepseek-v3.2"), load("deepseek-v3.2", mtp=True)
    one = load("deepseek-v3", mtp=True).params().total - load("deepseek-v3").params().total
    indexer = 1536 * 64 * 128 + 7168 * 128 + 2 * 128 + 7168 * 64
    assert asked.params().total - plain.params().total == one + indexer
    # 576 numbers of a latent and 128 of a key, for each token of one more layer
    assert asked.kv(ctx=9).total - plain.kv(ctx=9).total == 2 * 9 * (512 + 64 + 128)


@pytest.mark.parametrize("work", [Workload(13, 13, 3), Workload(17, 1, 2)])
def test_the_reference_runs_v32s(work: Workload) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("fvcore")
    checks = witness.checks(subject("mine", TINY["deepseek_v32"], TWO), work, all_layers=False, against=False)
    assert {check.witness for check in checks if not check.agrees} == set()
    assert any(path.startswith("mtp.1.attn.indexer.") for path in checks[0].measured)


@pytest.mark.parametrize("form", ["expanded", "absorbed", "unpacked"])
@pytest.mark.parametrize("work", [Workload(13, 13, 3), Workload(17, 4, 3, logits="last"), Workload(17, 1, 2)])
def test_the_reference_runs_them(form: str, work: Workload) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("fvcore")
    ours = subject("mine", TINY["deepseek_v3"], {**TWO, "latent_attention": form})
    checks = witness.checks(ours, work, all_layers=False, against=False)
    assert {check.witness for check in checks if not check.agrees} == set()
    assert any(path.startswith("mtp.1.") for path in checks[0].measured)
