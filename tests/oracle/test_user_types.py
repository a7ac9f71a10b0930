"""A transformers model as an argument. Kind: output."""

import pytest

from tests.helpers.lazy import lazy
from tfacct import load

torch, transformers = lazy("torch"), lazy("transformers")


def configs() -> list[str]:
    return ["GPT2", "Llama", "Qwen2", "Mistral", "OPT", "Gemma2"]


@pytest.mark.parametrize("name", configs())
def test_a_transformers_model_is_counted_as_it_is(name: str) -> None:
    """Its parameters, head and all, and those of its body, which has none; the config alone is taken to have one."""
    config = getattr(transformers, f"{name}Config")(vocab_size=97)
    with torch.device("meta"):
        whole = transformers.AutoModelForCausalLM.from_config(config)
        body = transformers.AutoModel.from_config(config)
    for network in (whole, body):
        stored = sum(tensor.numel() for tensor in {id(p): p for p in network.parameters()}.values())
        assert load(network).params().total_params == stored, type(network).__name__
    assert load(config).flops(ctx=8).document()["models"][0]["lines"] == load(whole).flops(ctx=8).lines
    assert load(config).name == config.model_type and load(config, vocab_size=98).config["vocab_size"] == 98
