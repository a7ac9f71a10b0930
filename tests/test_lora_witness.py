"""LoRA against peft's own adapters on the transformers classes, on meta dressed as CUDA: random small models."""

import pytest

from tests.conftest import tiny
from tests.training_configs import drawn
from tfacct.loading.model import subject
from tfacct.reports.lora import layers, parameters, read
from tfacct.reports.training import refusal
from tfacct.training.recipe import Recipe

pytest.importorskip("transformers")
pytest.importorskip("peft")


UNMEASURED = ("albert", "bart", "falcon_h1", "gemma3n_text", "lfm2", "mamba", "qwen3_5_text", "qwen3_next", "whisper")


@pytest.mark.parametrize("family", UNMEASURED)
@pytest.mark.parametrize("lora", ["3", "3:q_proj", "3:in_proj", "3:k_proj,down_proj"])
def test_adapters_have_as_many_parameters_as_pefts(family: str, lora: str) -> None:
    """Of families too whose step with adapters is not counted: convolutions, fused heads, both sides of a pair."""
    from tfacct.meta.lora import add_adapters
    from tfacct.meta.model import build_model

    model, asked = tiny(family), read(lora)
    found = parameters(model, asked)
    if found is None:
        return
    built = build_model(model.of_class, "eager", "bf16", auto=model.config.ending.auto)
    built = add_adapters(built, asked.rank, layers(model, asked))
    assert found == sum(one.numel() for one in built.parameters() if one.requires_grad)


def test_the_number_of_adapters_parameters_is_known_of_each_of_these() -> None:
    for family in UNMEASURED:
        assert any(parameters(tiny(family), read(on)) for on in ("3", "3:in_proj", "3:q_proj")), family


def test_a_name_that_modules_outside_the_blocks_have_is_refused() -> None:
    model = subject("bert", drawn("bert", 1)[0], {"num_hidden_layers": 2, "architectures": ["BertForMaskedLM"]}, None)
    said = refusal(model, Recipe(dtype="bf16", lora="4:dense"))
    assert said == (
        "peft takes 'dense' for cls.predictions.transform.dense too: adapters have been measured in the blocks alone"
    )


def test_adapters_beside_a_loss_in_chunks_are_refused_where_they_were_not_measured() -> None:
    model = subject("nemotron", drawn("nemotron", 1)[0], {"num_hidden_layers": 2}, None)
    said = refusal(model, Recipe(dtype="bf16", lora="4", loss="chunked"))
    assert said == "adapters on nemotron have not been measured with a loss in chunks"


@pytest.mark.parametrize("family", ["nemotron", "olmo3"])
def test_what_is_not_counted_beside_weights_in_4_bits_is_refused(family: str) -> None:
    refused = "is not counted with weights in nf4"
    model = subject(family, drawn(family, 1)[0], {"num_hidden_layers": 2}, None)
    assert refused in str(refusal(model, Recipe(dtype="bf16", lora="4", weights_dtype="nf4")))
