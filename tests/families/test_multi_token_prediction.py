"""Multi-token prediction layers are counted on request. Kind: golden."""

import json
from functools import cache
from pathlib import Path

import pytest

from tests.families import TINY
from tfacct import load
from tfacct.loading.model import LoadedModel, load_model

COUNTS = ("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers", "mtp_num_layers", "num_mtp_modules")


@cache
def without_layers(family: str) -> LoadedModel:
    return load_model("mine", {name: value for name, value in TINY[family].items() if name not in (*COUNTS, "use_mtp")})


@pytest.mark.parametrize("field", COUNTS)
def test_every_family_reads_the_number_of_layers_alike(field: str) -> None:
    """Any spelling is accepted in any family; the layers are not counted, but named."""
    for family in TINY:
        if family in ("custom", "step3p5"):  # tables of parts; lists of layers that go on for these
            continue
        without = without_layers(family)
        asked = load_model("mine", {**without.raw, field: 2})
        assert asked.ledger.parameters() == without.ledger.parameters()
        assert (asked.not_included, without.not_included) == (("MTP", field, 2), None), family
        assert field not in asked.unknown


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({}, None),
        ({"num_nextn_predict_layers": 0}, None),
        ({"num_nextn_predict_layers": None}, None),
        ({"num_mtp_modules": 3, "mtp_transformer_layers": 2, "use_mtp": True}, ("MTP", "num_mtp_modules", 6)),
        ({"num_mtp_modules": 3, "use_mtp": False}, None),
        ({"num_nextn_predict_layers": 1, "dspark_target_layer_ids": [4, 5]}, ("DSpark", "dspark_target_layer_ids", 2)),
    ],
)
def test_the_layers_that_are_not_included(fields: dict, found: tuple | None) -> None:
    assert load_model("mine", {**TINY["llama"], **fields}).not_included == found


def test_params_and_memory_name_the_layers_that_they_do_not_include() -> None:
    plain, asked = load("deepseek-v3"), load("deepseek-v3", mtp=True)
    more = asked.params().total - plain.params().total
    missing = {"kind": "MTP", "field": "num_nextn_predict_layers", "layers": 1, "params": more}
    assert plain.params().models[0]["not_included"] == missing
    stored = asked.memory(ctx=1).models[0]["weights_bytes"] - plain.memory(ctx=1).models[0]["weights_bytes"]
    assert plain.memory(ctx=1).models[0]["not_included"] == {**missing, "bytes": stored}
    assert asked.params().models[0]["not_included"] is asked.memory(ctx=1).models[0]["not_included"] is None


def test_the_layers_of_a_dspark_draft(run, tmp_path: Path) -> None:
    """DeepSeek-V4-Flash-0731: its files have three layers with 256 experts under `mtp`, what joins the results of three
    layers, two embeddings of 129,280 x 256, a confidence score and the sum of the residual streams."""
    preset = {name: value for name, value in load("deepseek-v4-flash").config.items() if name != "compress_ratios"}
    ratios = [*load("deepseek-v4-flash").config["compress_ratios"][:43], 0, 0, 0]
    draft = {"dspark_target_layer_ids": [40, 41, 42], "dspark_markov_rank": 256, "dspark_block_size": 5}
    (path := tmp_path / "v4.json").write_text(json.dumps({**preset, "compress_ratios": ratios, **draft}))
    experts = 257 * 3 * 2048 * 4096 + 256 * 4096
    attention = 512 * 4096 + 2 * 8192 * 4096 + 1024 * 4096 + 32768 * 1024 + 512 + 1024 + 64
    streams = 2 * (24 + 24 * 16384 + 3)
    ends = 4096 * 12288 + 2 * 4096 + 2 * 129280 * 256 + 4352 + 4 + 4 * 16384 + 1
    params = 3 * (experts + attention + streams + 2 * 4096) + ends
    assert params == 19_845_850_215
    (model,) = run("params", str(path), "--json").models
    assert model["not_included"] == {
        "kind": "DSpark",
        "field": "dspark_target_layer_ids",
        "layers": 3,
        "params": params,
    }
    ran = run("memory", str(path), "--ctx", "1")
    note = "Not included: 3 DSpark layers (dspark_target_layer_ids), 10.1 GiB of weights."
    assert note in ran.out_line and "unknown" not in ran.err
    shorter = {**preset, "compress_ratios": ratios[:44], **draft}
    path.write_text(json.dumps(shorter))
    (model,) = run("params", str(path), "--json").models
    assert (model["not_included"]["layers"], model["not_included"]["params"]) == (3, None)
