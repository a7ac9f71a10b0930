"""`budget`: published fits, tokens of a model by its FLOPs, days and cost. Kind: golden."""

import json

import pytest

from tests.helpers.cli import Run
from tfacct import load
from tfacct.loading import presets
from tfacct.reports.budget import budget
from tfacct.timing.compute_optimal import LOSS_FITS, parameters

GPT2 = presets.load("gpt2")
GPT2_FLOPS = 854_438_400
"""FLOPs of a training step per token at context 1,024, by hand in test_mfu.py."""


def test_chinchilla_by_hand() -> None:
    """sqrt(1e21 / (6 · 20)) = 2.8868e9 parameters, times 20 = 5.7735e10 tokens; 8 · 989.4e12 · 0.4 FLOP/s."""
    report = budget(None, 1e21, on="8xh100-sxm", mfu=0.4, price=2.5)
    (facts,) = report.models
    assert (facts["optimal_parameters"], facts["optimal_tokens"]) == (2_886_751_346, 57_735_026_919)
    assert facts["days"] == pytest.approx(1e21 / (8 * 989.4e12 * 0.4) / 86_400, rel=1e-12)  # 3.6557
    assert facts["cost"] == pytest.approx(3.6557 * 24 * 8 * 2.5, rel=1e-4)
    answer = "1e21 FLOPs: 2.89 B parameters on 57.7 B tokens (Chinchilla), 3.66 days, 702 device-hours, cost 1,755."
    assert report.answer == answer
    # Chinchilla: 70 B parameters on 1.4 T tokens take 6 · 70e9 · 1.4e12 = 5.88e23 FLOPs
    assert parameters(5.88e23, 20) == pytest.approx(70e9, rel=1e-12)


def test_the_answer_and_the_rows_have_one_notation() -> None:
    """419,430,400,000 tokens · 10.28e9 FLOPs = 4.31e21 on 1,557,611,200 parameters; 989.4 TFLOP/s · 0.5: 100.9 days,
    times 24 hours on one device."""
    report = budget(presets.load("gpt2-xl"), tokens=419_430_400_000, on="h100-sxm", mfu=0.5)
    assert report.answer == (
        "gpt2-xl on 419 B tokens (269 per parameter) at context 1,024: 4.31 Z FLOPs (4.31e21), 101 days,"
        " 2,420 device-hours."
    )
    assert "50% MFU of 989 TFLOP/s (bf16) is assumed on each device, without interruptions." in report.notes


def test_rows_by_tokens_per_parameter() -> None:
    lines = budget(None, 1e21, tokens_per_parameter=30).models[0]["lines"]
    assert [line["tokens_per_parameter"] for line in lines[:-2]] == [10, 20, 30, 40, 100, 200]
    for line in lines:
        assert 6 * line["parameters"] * line["tokens"] == pytest.approx(1e21, rel=1e-8)
        assert line["tokens"] / line["parameters"] == pytest.approx(line["tokens_per_parameter"], rel=1e-8)


@pytest.mark.parametrize(("name", "wanted"), [("approach 3", 2.215e9), ("approach 3, 2024", 2.778e9)])
def test_fits_of_the_loss(name: str, wanted: float) -> None:
    """N = G · (1e21 / 6)^a, with G = 1.30039 and a = 0.2849 / 0.6241, or G = 0.119630 and a = 0.3658 / 0.7136; and the
    loss there is less than on both sides."""
    fit = LOSS_FITS[name]

    def loss(n: float) -> float:
        return fit.a / n**fit.alpha + fit.b / (1e21 / 6 / n) ** fit.beta

    best = fit.parameters(1e21)
    assert best == pytest.approx(wanted, rel=1e-3)
    assert loss(best) < min(loss(best * 0.99), loss(best * 1.01))


@pytest.mark.parametrize(("flops", "published"), [(2.46e22, 10e9), (1.71e24, 67e9), (5.76e23, 40e9)])
def test_approach_3_gives_the_sizes_of_its_paper(flops: float, published: float) -> None:
    """Hoffmann et al., table A3; and the size for Gopher's FLOPs."""
    assert LOSS_FITS["approach 3"].parameters(flops) == pytest.approx(published, rel=0.05)


def test_tokens_of_a_model() -> None:
    """By its own FLOPs, attention included; at context 1,024 if that is its longest."""
    (facts,) = budget(GPT2, GPT2_FLOPS * 1e9).models
    assert (facts["tokens"], facts["context"], facts["flops_per_token"]) == (10**9, 1024, GPT2_FLOPS)
    assert facts["tokens_per_parameter"] == pytest.approx(1e9 / 124_439_808)
    (back,) = budget(GPT2, tokens=10**9).models
    assert back["flops"] == pytest.approx(GPT2_FLOPS * 1e9, rel=1e-12)
    assert back["tokens"] == 10**9
    (usual,) = budget(GPT2).models
    assert usual["tokens"] == 20 * 124_439_808


def test_tokens_and_flops_of_a_model_are_exact() -> None:
    tokens = 123_456_789_012_345_679
    (facts,) = budget(GPT2, tokens=tokens).models
    assert (facts["tokens"], facts["flops"]) == (tokens, tokens * GPT2_FLOPS)
    assert len(facts["lines"]) == 1  # the asked row alone
    lines = budget(GPT2).models[0]["lines"]
    assert [line["flops"] for line in lines[:2]] == [times * 124_439_808 * GPT2_FLOPS for times in (10, 20)]


def test_the_assumed_utilization_is_that_of_a_dtype() -> None:
    """An H100 multiplies fp8 at 1,978.9 TFLOP/s."""
    report = budget(GPT2, tokens=10**9, on="h100", mfu=0.125, dtype="fp8")
    assert "12.5% MFU of 1,979 TFLOP/s (fp8) is assumed on each device, without interruptions." in report.notes
    assert report.title.startswith("Training on 1 × H100") and report.title.endswith(" in fp8")
    fp32 = budget(GPT2, tokens=10**9, on="8xa100", mfu=0.5, dtype="fp32")  # 19.5 TFLOP/s outside the tensor cores
    assert "50% MFU of 19.5 TFLOP/s (fp32) is assumed on each device, without interruptions." in fp32.notes
    assert report.models[0]["days"] == pytest.approx(GPT2_FLOPS * 1e9 / (0.125 * 1978.9e12) / 86_400, rel=1e-4)


def test_nearest_size_of_the_family() -> None:
    """Llama has 3.21 B for 2.89 B; Qwen3 has 1.72 B for 2.04 B, nearer as a ratio than 4.02 B."""
    (facts,) = budget(None, 1e21).models
    assert facts["model"] == "llama-3.2-3b"
    assert facts["flops_per_token"] == load("llama-3.2-3b").flops_per_token(ctx=4096, train=True)
    by_ratio = {
        line["tokens_per_parameter"]: line for line in budget(presets.load("qwen3-8b"), 1e21).models[0]["lines"]
    }
    assert by_ratio[40]["nearest"] == "qwen3-1.7b"
    assert by_ratio[40]["nearest_tokens"] == round(1e21 / load("qwen3-1.7b").flops_per_token(ctx=4096, train=True))
    own = budget(presets.load("gpt2", {"n_layer": 13}), 1e18).models[0]
    assert {line["nearest"] for line in own["lines"]} <= {"gpt2", "distilgpt2", "gpt2-medium"}


def test_no_days_of_a_step_that_cannot_fit() -> None:
    """405 B parameters, gradients and AdamW's state in bf16 are 8 · 405.85e9 / 8 bytes of each device, 378 GiB."""
    report = budget(presets.load("llama-3.1-405b"), tokens=15 * 10**12, on="8xh100", price=2)
    (facts,) = report.models
    assert facts["fits"] is False and facts["days"] is facts["cost"] is facts["lines"][0]["days"] is None
    assert report.answer.startswith("Does not fit on 8 × H100 SXM5 80GB: a step under FSDP needs at least 378 GiB")
    assert budget(presets.load("llama-3.1-405b"), tokens=15 * 10**12, on="1024xh100").models[0]["fits"] is True


def test_no_empty_columns_without_a_family() -> None:
    keys = [column.key for column in budget(presets.load("vit-base-patch16-224"), 1e20).columns]
    assert keys == ["tokens_per_parameter", "parameters", "tokens", "basis"]


def test_a_size_is_a_number_of_parameters() -> None:
    """20 tokens each by default: 6 · 3e9 · 60e9 FLOPs, and 6 · 3e9 · 300e9 on 300 B tokens. Kimi K2 has 10¹²
    parameters; as FLOPs, this number would train 91 thousand."""
    assert budget(None, 3e9).models[0]["flops"] == 6 * 3 * 60 * 10**18
    assert budget(None, 3e9, tokens=3 * 10**11).models[0]["flops"] == 6 * 3 * 300 * 10**18
    assert budget(None, 1e12).models[0]["flops"] == pytest.approx(1.2e26)
    assert budget(None, 3e9).answer == "1.08e21 FLOPs: 3.00 B parameters on 60.0 B tokens (Chinchilla)."


def test_command_line(run: Run) -> None:
    trained = run("budget", "gpt2", "--tokens", "1B", "--json")
    assert json.loads(trained.out) == load("gpt2").budget(tokens="1B").document()
    bought = run("budget", "1e18", "--model", "gpt2", "--set", "n_layer=6", "--json")
    assert json.loads(bought.out) == load("gpt2", n_layer=6).budget(flops="1e18").document()
