"""Published configs: fields that change no count are accepted, fields that change counts are refused. Kind: golden,
refusal.
"""

from __future__ import annotations

import json

import pytest

from tests.families import TINY
from tfacct import load
from tfacct.base.errors import ConfigError
from tfacct.loading.model import load_model
from tfacct.loading.quantized.methods import storage_of

FP8 = ("e4m3", "float8_e4m3fn")


def test_gptq_as_its_newer_files_spell_it_is_stored_alike() -> None:
    """Qwen3's own GPTQ files have hyb_act = false; another order of inputs is not known."""
    stored = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}
    sizes = {**TINY["llama"], "hidden_size": 256, "intermediate_size": 256}
    of = [load_model("mine", {**sizes, "quantization_config": {**stored, **more}}) for more in ({}, {"hyb_act": False})]
    first, second = (
        one.ledger.weight_bytes(storage_of(one, one.raw["quantization_config"], "quantization_config")) for one in of
    )
    assert first == second
    with pytest.raises(ConfigError, match="hyb_act = true is not supported"):
        storage_of(of[0], {**stored, "hyb_act": True}, "quantization_config")


def test_fp8_under_torchs_name_for_it_is_stored_alike() -> None:
    """MiniMax-M2's files say float8_e4m3fn where DeepSeek-V3's say e4m3."""
    one = load_model("mine", TINY["minimax_m2"])
    stored = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
    first, second = (
        one.ledger.weight_bytes(storage_of(one, {**stored, "fmt": name}, "quantization_config")) for name in FP8
    )
    assert first == second


def test_bart_large_mnli_by_hand() -> None:
    """bart-large's 406,291,456 and 1,024 · 1,024 + 1,024 + 3 · 1,024 + 3 of the head."""
    said = {**load("bart-large").loaded.raw, "architectures": ["BartForSequenceClassification"], "_num_labels": 3}
    ours = load_model("mine", {**said, "id2label": {"0": "contradiction", "1": "neutral", "2": "entailment"}})
    assert ours.parameters == 406_291_456 + 1024 * 1024 + 1024 + 3 * 1024 + 3 == 407_344_131
    assert ours.unknown == ()


@pytest.mark.parametrize(
    ("family", "stem", "word"), [("llama", "Llama", "language model"), ("gte", "Gte", "text encoder")]
)
def test_what_a_body_is_called_whose_file_names_a_head_too(run, tmp_path, family: str, stem: str, word: str) -> None:
    other = "ForCausalLM" if family == "llama" else "ForMaskedLM"
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**TINY[family], "architectures": [f"{stem}Model", f"{stem}{other}"]}))
    said = " ".join(run("params", str(file)).err.split())
    assert f"only the {word} is counted, without {stem}{other}" in said
