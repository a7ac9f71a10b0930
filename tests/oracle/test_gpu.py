"""On a CUDA device, if there is one: logits, counts, parameter and KV bytes. Kind: oracle."""

import pytest

from tests.helpers.lazy import lazy, needs
from tfacct import load
from tfacct.loading import presets

torch, model = lazy("torch"), lazy("tfacct.reference.model")
pytestmark = needs("torch", "fvcore")


@pytest.fixture(autouse=True)
def _cuda() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")


@pytest.mark.parametrize("name", ["llama-3.2-1b", "gpt2-xl"])
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("sdpa", [False, True], ids=["counted", "fused"])
def test_bytes_and_counts(name: str, dtype: str, sdpa: bool) -> None:
    (facts,) = load(name).measure(ctx=1024, steps=2, device="cuda", dtype=dtype, sdpa=sdpa).models
    assert facts["measured_weights_bytes"] == facts["weights_bytes"]
    assert facts["measured_kv_cache_bytes"] == facts["kv_cache_bytes"]
    assert facts["counted_flops"] == facts["forward_flops"]
    assert facts["peak_bytes"] >= facts["weights_bytes"] + facts["kv_cache_bytes"]


def test_a_device_by_its_number() -> None:
    last = f"cuda:{torch.cuda.device_count() - 1}"
    (facts,) = load("gpt2").measure(ctx=256, steps=2, device=last, dtype="bf16").models
    assert facts["device"] == last and facts["seconds_min"] > 0 and 0 < facts["mfu"] < 2


@pytest.mark.parametrize("name", ["llama-3.2-1b", "gpt2-xl"])
def test_decode_holds_the_cache_that_was_predicted(name: str) -> None:
    (facts,) = load(name).measure(ctx=512, steps=8, decode=True, device="cuda", dtype="bf16").models
    assert facts["measured_kv_cache_bytes"] == facts["kv_cache_bytes"]


@pytest.mark.parametrize("name", ["llama-3.2-1b", "gpt2-xl"])
def test_logits_are_those_of_the_cpu_and_of_fused_attention(name: str) -> None:
    """Two blocks of the real width in float64: the device's own rounding is the only difference."""
    shape = presets.load(name).with_layers(2).architecture
    torch.manual_seed(0)
    here = model.build(shape, device="cpu", dtype=torch.float64)
    there = model.build(shape, device="cuda", dtype=torch.float64)
    fused = model.build(shape, device="cuda", dtype=torch.float64, fused=True)
    for built in (there, fused):
        built.load_state_dict(here.state_dict())
    tokens = torch.randint(0, shape.embed.vocab, (2, 37))
    with torch.no_grad():
        expected, *_ = here(tokens)
        for built in (there, fused):
            found, *_ = built(tokens.cuda())
            assert float((found.cpu() - expected).abs().max() / expected.abs().max()) <= 1e-10
