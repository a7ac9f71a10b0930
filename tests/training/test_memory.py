"""A training step: saved activations, phases and optimizers. Kind: golden, refusal.

The figures of `MEASURED` were read off the transformers classes (5.23) on the meta device with CUDA's kernels: bytes of
the tensors that autograd saves, and the most bytes alive at any operation of a second step. There is one for
each set of traits and kind of layer, and others where the recipe changes what is saved.
"""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.helpers.cli import Ran
from tests.helpers.training_step import saved_in, step_of
from tfacct import load
from tfacct.base.errors import UsageError
from tfacct.ledger.workload import Workload
from tfacct.loading import presets
from tfacct.training.memory import training_memory
from tfacct.training.recipe import Recipe
from tfacct.training.unsupported import reads_images, refusal

# model, dtype, attention, recompute, optimizer, batch, context: bytes saved and at the peak
MEASURED = [
    ("llama-3.1-8b", "bf16", "sdpa", "none", "adamw", 1, 4096, 28_562_244_364, 80_946_473_364),
    ("llama-3.1-8b", "bf16", "sdpa", "full", "adamw", 1, 4096, 3_309_387_788, 64_275_678_868),
    ("llama-3.1-8b", "bf16", "sdpa", "full", "adamw", 2, 8192, 13_237_551_108, 78_234_019_476),
    ("llama-3.1-8b", "bf16", "eager", "none", "adamw", 1, 4096, 133_235_294_220, 185_619_523_220),
    ("llama-3.2-1b", "bf16", "sdpa", "none", "adamw", 4, 2048, 18_582_503_812, 34_402_710_736),
    ("qwen2.5-7b", "bf16", "sdpa", "none", "adamw-foreach", 1, 4096, 28_461_712_044, 79_138_213_364),
    ("qwen2.5-7b", "bf16", "sdpa", "none", "adamw", 1, 4096, 28_461_712_044, 79_138_213_364),
    ("qwen2.5-7b", "bf16", "sdpa", "full", "adamw-foreach", 1, 4096, 3_431_022_604, 76_156_199_756),
    ("qwen2.5-7b", "bf16", "sdpa", "full", "adamw", 1, 4096, 3_431_022_604, 60_954_326_868),
    ("qwen3-8b", "bf16", "sdpa", "none", "adamw", 1, 4096, 34_378_302_316, 88_501_322_660),
    ("mistral-7b-v0.3", "bf16", "sdpa", "none", "adamw", 1, 4096, 26_997_768_972, 71_559_621_012),
    ("mistral-7b-v0.1", "bf16", "sdpa", "none", "adamw", 1, 4096, 29_669_540_364, 74_168_477_844),
    ("gemma-2-2b", "bf16", "eager", "none", "adamw-foreach", 1, 1024, 7_951_193_100, 26_143_429_250),
    ("gemma-2-2b", "bf16", "eager", "none", "adamw", 1, 1024, 7_951_193_100, 25_734_390_410),
    ("gemma-3-1b", "bf16", "sdpa", "none", "adamw", 1, 4096, 17_036_080_076, 31_625_301_018),
    ("mixtral-8x7b", "bf16", "sdpa", "none", "adamw-foreach", 1, 2048, 23_163_873_036, 467_027_945_100),
    ("gpt2-xl", "fp32", "sdpa", "none", "adamw", 1, 1024, 9_191_658_252, 28_294_692_120),
    ("gpt2-xl", "bf16", "eager", "none", "adamw", 4, 1024, 44_270_477_316, 55_262_935_448),
    ("gpt2", "fp32", "eager", "none", "adamw", 8, 1024, 21_183_569_924, 25_970_425_432),
    ("opt-6.7b", "bf16", "sdpa", "none", "none", 1, 2048, 7_434_208_012, 27_457_568_776),
    ("phi-2", "bf16", "sdpa", "none", "none", 1, 2048, 9_844_867_852, 16_243_080_072),
    ("pythia-1.4b", "fp32", "eager", "none", "none", 2, 1024, 9_707_765_764, 16_190_521_480),
    ("phi-3-mini-4k", "bf16", "sdpa", "none", "none", 1, 4096, 21_583_446_540, 30_276_246_408),
    ("phi-4", "bf16", "sdpa", "full", "none", 1, 4096, 3_489_742_860, 58_680_005_128),
    ("qwen2-57b-a14b", "bf16", "sdpa", "full", "none", 1, 4096, 3_428_925_452, 229_946_335_008),
    ("olmo-3-7b", "bf16", "sdpa", "none", "none", 1, 8192, 77_227_459_148, 98_395_235_912),
    ("starcoder2-7b", "bf16", "sdpa", "full", "none", 2, 4096, 4_177_723_396, 30_104_199_704),
    ("gpt-oss-20b", "bf16", "eager", "none", "none", 1, 2048, 29_265_931_276, 84_205_361_928),
    ("gpt-oss-120b", "bf16", "eager", "full", "none", 1, 4096, 4_262_019_084, 472_875_472_648),
    ("youtu-llm-2b", "bf16", "sdpa", "none", "none", 1, 4096, 18_286_199_308, 26_411_979_528),
    ("moonlight-16b-a3b", "bf16", "eager", "none", "none", 1, 2048, 23_722_531_340, 64_587_066_888),
    ("deepseek-v3", "bf16", "sdpa", "full", "none", 1, 4096, 5_935_022_092, 2_684_164_400_392),
    ("helium-2b", "bf16", "sdpa", "none", "none", 1, 4096, 13_533_768_268, 19_451_887_688),
    ("glm-4-9b-chat", "bf16", "sdpa", "none", "none", 1, 4096, 35_564_897_228, 59_330_823_368),
    ("glm-4.5-air", "bf16", "sdpa", "full", "none", 1, 4096, 4_160_831_500, 427_442_592_520),
    ("stablelm-2-1.6b", "bf16", "eager", "full", "none", 2, 2048, 2_080_473_092, 9_480_712_264),
    ("olmo-7b", "bf16", "eager", "full", "none", 1, 2048, 999_342_092, 28_794_995_208),
    ("command-r-35b", "bf16", "sdpa", "none", "none", 1, 4096, 63_765_988_300, 148_311_966_216),
    ("command-r7b", "bf16", "sdpa", "full", "none", 1, 8192, 11_006_033_932, 43_910_619_656),
    ("olmoe-1b-7b", "bf16", "sdpa", "none", "none", 1, 2048, 7_177_548_172, 27_799_659_296),
    ("ernie-4.5-0.3b", "bf16", "sdpa", "none", "none", 1, 4096, 5_508_317_628, 9_618_779_064),
    ("bert-base", "bf16", "sdpa", "none", "none", 8, 512, 1_571_344_674, 2_290_453_912),
    ("bert-large", "fp32", "eager", "full", "none", 2, 512, 247_730_180, 2_931_448_280),
    ("distilbert-base", "bf16", "sdpa", "none", "none", 16, 512, 1_818_329_234, 2_952_449_288),
    ("dots.llm1", "bf16", "sdpa", "full", "none", 1, 4096, 4_706_091_020, 571_131_098_888),
    ("starcoder", "bf16", "sdpa", "none", "none", 1, 4096, 31_248_221_132, 63_960_822_728),
    ("starcoderbase-1b", "bf16", "eager", "full", "none", 2, 2048, 1_250_017_284, 6_309_457_416),
    ("hunyuan-0.5b", "bf16", "eager", "full", "none", 2, 2048, 2_214_445_060, 7_269_239_304),
    ("eurobert-210m", "bf16", "eager", "full", "none", 2, 2048, 2_202_058_756, 7_025_825_544),
    ("bloom-7b1", "bf16", "eager", "full", "none", 2, 2048, 5_217_845_252, 32_386_514_952),
    ("granite-3.1-1b-a400m", "bf16", "sdpa", "none", "none", 1, 4096, 9_534_049_868, 13_813_985_096),
    ("falcon-7b", "bf16", "eager", "none", "none", 1, 2048, 26_793_787_916, 42_090_811_656),
    ("falcon-40b", "bf16", "sdpa", "full", "none", 2, 2048, 5_226_201_092, 167_343_915_272),
    ("modernbert-large", "bf16", "sdpa", "full", "none", 4, 8192, 8_884_584_452, 22_951_320_456),
    ("minimax-m2", "bf16", "sdpa", "none", "none", 1, 2048, 43_755_003_356, 914_771_627_272),
    ("mixtral-8x7b", "fp32", "eager", "none", "none", 1, 1024, 27_030_082_572, 373_639_127_560),
    ("gpt-neo-125m", "fp32", "eager", "full", "none", 4, 1024, 999_677_956, 3_214_369_800),
    ("flexolmo-7x7b", "bf16", "eager", "full", "none", 2, 512, 721_440_772, 133_091_058_184),
    ("k-exaone-236b-a23b", "bf16", "sdpa", "none", "none", 1, 2048, 58_567_745_900, 946_309_796_104),
    ("efficient-mlm-m0.40", "bf16", "eager", "full", "none", 2, 512, 166_955_010, 1_627_558_280),
]


@pytest.mark.parametrize("case", MEASURED, ids=lambda case: "-".join(map(str, case[:5])))
def test_published_sizes_meet_what_was_measured(case: tuple[Any, ...]) -> None:
    """Bytes saved and at the peak, against the class's: within the bound of the family and recipe. Without optimizer
    state, half the bytes of small batches, the same error is up to twice the share."""
    name, dtype, attention, recompute, optimizer, batch, context, saved, peak = case
    recipe = Recipe(dtype, optimizer, recompute, attention)
    found = training_memory(load(name).loaded, Workload(context=context, tokens=context, batch=batch), recipe)
    assert found.bound is not None
    assert int(found.peak.total) == pytest.approx(peak, rel=found.bound.share * (2 if optimizer == "none" else 1))
    assert int(found.step.saved_bytes()) == pytest.approx(saved, rel=found.bound.share and 0.03)


@pytest.mark.parametrize(
    ("context", "recipe", "peak"),
    [
        (2048, {}, 6_725_235_108),
        (2048, {"weights_dtype": "fp32"}, 9_212_051_876),
        (2048, {"recompute": "full", "loss": "chunked"}, 4_011_512_228),
        (1024, {"dtype": "fp32"}, 5_497_434_532),
    ],
    ids=str,
)
def test_gradients_of_values_wait_for_those_of_scores(context: int, recipe: dict[str, Any], peak: int) -> None:
    """Peaks of the class with four layers of TinyLlama and eager attention, in the backward pass of the softmax."""
    model = load("tinyllama-1.1b", num_hidden_layers=4).loaded
    work = Workload(context=context, tokens=context, batch=1)
    found = training_memory(model, work, Recipe(attention="eager", **recipe)).peak
    assert (found.total, found.operation) == (peak, "blocks.*.attn.softmax")


def test_tokens_weighted_before_their_experts_are_saved_until_the_end_of_the_layer() -> None:
    """Llama 4 gives each of 128 experts every token times its weight: 128 x 4096 x 5120 numbers in 16 bits more. The
    class has 113,303,286,304 bytes at the peak."""
    model = load("llama-4-maverick-text", num_hidden_layers=2).loaded
    work = Workload(context=4096, tokens=4096, batch=1)
    peak = training_memory(model, work, Recipe(optimizer="none", recompute="full")).peak.total
    assert peak == pytest.approx(113_303_286_304, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "context", "peak"),
    [("qwen3-8b", 512, 38_091_266_852), ("internlm3-8b", 512, 32_077_339_396), ("mimo-7b", 1024, 37_301_498_676)],
)
def test_gradient_of_logits_is_freed_before_that_of_the_head_is_cast(name: str, context: int, peak: int) -> None:
    """Peaks of the class with four layers and gradient accumulation under autocast, in the head's backward pass."""
    model, work = load(name, num_hidden_layers=4).loaded, Workload(context=context, tokens=context, batch=1)
    found = training_memory(model, work, Recipe(weights_dtype="fp32", gradient_accumulation=2)).peak
    assert (found.total, found.operation) == (peak, "lm_head.weight")


@pytest.mark.parametrize(
    ("name", "tokens", "batch", "recipe", "peak"),
    [
        # The gradient that shared experts send to a norm's result waits while those of routed experts are computed, of
        # which one is in fp32 and cast.
        ("dots.llm1", 4096, 1, {"lora": "16:q_proj,k_proj,v_proj,o_proj", "loss": "chunked"}, 22_576_772_072),
        ("mistral-small-4-text", 4096, 4, {"recompute": "full"}, 116_260_862_492),
        # The gradient that an MLP in parallel sends to the same norm as attention waits, too.
        ("gpt-j-6b", 2048, 1, {"recompute": "full"}, 10_201_180_092),
        # The gradient of what an MLP adds to the residual stream is that of the sum.
        ("pythia-6.9b", 2048, 8, {"recompute": "full", "loss": "chunked"}, 12_157_436_272),
        # Slices of an adapted matmul gate each other.
        ("lfm2-350m", 4096, 1, {"lora": "16", "loss": "chunked"}, 2_090_255_064),
        # Values are a view of one tensor with queries and keys.
        ("mpt-7b", 2048, 1, {"attention": "eager"}, 11_740_225_648),
        # Cross-attention saves the zeros of its bias. No gradient of the other biases is computed.
        ("t5-small", 512, 1, {"lora": "16"}, 427_564_740),
        # peft casts no result of an activation that runs in fp32.
        ("gpt-j-6b", 2048, 1, {"lora": "16", "weights_dtype": "fp32", "recompute": "full"}, 6_831_821_896),
        # A chunk saves what its head transforms.
        ("camembert-base", 512, 1, {"lora": "16", "weights_dtype": "fp32", "loss": "chunked"}, 429_117_540),
    ],
)
def test_peaks_of_four_layers(name: str, tokens: int, batch: int, recipe: dict[str, Any], peak: int) -> None:
    """Peaks of the classes of transformers 5.23, where an error of one tensor shows."""
    fields = ("n_layer", "n_layers", "num_layers", "num_decoder_layers", "num_hidden_layers")
    layers = {field: 4 for field in fields if field in presets.load(name).raw}
    assert load(name, **layers).train(ctx=tokens, batch=batch, **recipe).peak_bytes == pytest.approx(peak, rel=5e-4)


@pytest.mark.parametrize(
    ("context", "recipe", "peak"),
    [
        (301, {"lora": "16"}, 1_667_421_924),  # no gradient of a frozen weight is added to another
        (512, {"weights_dtype": "fp32"}, 5_592_532_096),  # those of 16-bit copies are cast once, after the first layer
    ],
    ids=str,
)
def test_gradients_of_weights_that_layers_share(context: int, recipe: dict[str, Any], peak: int) -> None:
    """Peaks of the class of albert-xxlarge-v2, whose 12 layers share 201 million weights."""
    model, work = load("albert-xxlarge-v2").loaded, Workload(context=context, tokens=context, batch=1)
    found = training_memory(model, work, Recipe(**recipe))
    assert found.bound is not None
    assert found.peak.total == pytest.approx(peak, rel=found.bound.share)


NARROW = {"n_embd": 64, "n_head": 4, "n_layer": 3, "n_inner": 512, "vocab_size": 160, "n_positions": 2048}
CHARACTERS: dict[str, Any] = {"model_type": "gpt2", **NARROW, "attn_pdrop": 0, "resid_pdrop": 0, "embd_pdrop": 0}
"""A vocabulary so small that the peak is in the MLP of a layer."""


@pytest.mark.parametrize(
    ("source", "recipe", "saved", "peak"),
    [
        # torch's efficient kernel pads the logarithms of a head to 32 tokens, and rows of a mask to 8 keys.
        ("gpt2", {"ctx": 1000, "dtype": "fp32"}, 1_259_378_028, 3_154_704_312),
        ("mistral-7b-v0.1", {"ctx": 5003}, 36_531_532_264, 81_262_654_488),
        # Labels are the tokens themselves, which the loss saves although the embedding is frozen.
        ("bert-base", {"ctx": 300, "batch": 3, "lora": 8}, 541_559_090, 886_400_904),
        # The encoder's output is an argument of the recomputed decoder layers. The formula counts shifted labels twice.
        (
            "bart-base",
            {"ctx": 300, "batch": 2, "lora": 8, "recompute": "full"},
            93_994_674,
            517_120_710 + 2 * 300 * 8,
        ),
        ("gpt2", {"ctx": 1024, "batch": 4, "loss": "chunked", "recompute": "full"}, 91_332_608, 1_229_450_840),
        ("gemma-2-2b", {"ctx": 1024, "batch": 4, "loss": "chunked"}, 25_507_267_584, 44_748_780_174 - 4),
        # The cast of a frozen head exists once for each chunk.
        (
            "llama-3.2-1b",
            {"ctx": 1023, "batch": 5, "lora": 7, "weights_dtype": "fp32", "loss": "chunked", "optimizer": "sgd"},
            None,
            18_068_670_232,
        ),
        # Gate and up of all experts are one weight, whose new gradient is added to the earlier one. The formula counts
        # 8 more bytes for each token.
        (
            "mixtral-8x7b",
            {"ctx": 301, "gradient_accumulation": 2, "optimizer": "sgd"},
            None,
            192_014_222_112 + 8 * 301,
        ),
        # The gradient of shared layers is added to the earlier one after the first layer. The formula counts two more
        # vectors of 4,096 numbers.
        (
            "albert-xxlarge-v2",
            {"ctx": 301, "gradient_accumulation": 3, "optimizer": "none", "dtype": "fp32"},
            None,
            4_528_905_208 + 2 * 4 * 4096,
        ),
        ({**CHARACTERS, "activation_function": "gelu_new"}, {"ctx": 288, "batch": 2}, None, 14_361_840),
        ({**CHARACTERS, "activation_function": "gelu_fast"}, {"ctx": 288, "batch": 2}, None, 19_670_256),
        ({**CHARACTERS, "activation_function": "relu2"}, {"ctx": 288, "batch": 2}, None, 9_643_248),
        ({**CHARACTERS, "activation_function": "gelu"}, {"ctx": 288, "batch": 2}, None, 8_971_632),
        (
            {**CHARACTERS, "activation_function": "gelu_new"},
            {"ctx": 288, "batch": 2, "weights_dtype": "fp32"},
            None,
            25_400_816,
        ),
    ],
)
def test_bytes_of_the_class(source: Any, recipe: dict[str, Any], saved: int | None, peak: int) -> None:
    """Saved and peak bytes of transformers 5.23 classes on torch 2.13. In gemma-2's peak the class has one more fp32
    number."""
    step = load(source).train(**recipe)
    assert step.peak_bytes == peak and saved in (None, step.saved_bytes)


def test_weights_stored_quantized_are_trained_in_the_dtype_of_the_pass(run: Callable[..., Ran]) -> None:
    out = " ".join(run("train", "gpt-oss-20b", "--attention", "eager", "--ctx", "2k", "-v").out.split())
    assert "a training step in bf16 (8 bytes per parameter)" in out and "The published weights are quantized" in out


def test_a_block_of_bert_by_hand() -> None:
    """Its input, two sums and the norm between them, 8·D bytes, and a byte for each number of two dropouts; queries,
    keys, values and the result of attention; the MLP before and after its GELU; two means and deviations."""
    fields = {"hidden_size": 48, "num_attention_heads": 3, "intermediate_size": 70, "num_hidden_layers": 3}
    model = load("bert-base", **fields, attention_probs_dropout_prob=0.0).loaded
    step = step_of(model, Workload(context=23, tokens=23, batch=2), Recipe())
    (blocks,) = step.graph.layers
    assert saved_in(step, blocks) == 2 * 23 * (8 * 48 + 2 * 48 + 8 * 48 + 4 * 3 + 4 * 70 + 16) + 24


def test_a_sequence_longer_than_the_window_saves_a_mask_by_hand() -> None:
    """At 4,095 tokens there is no mask, and the flash kernel runs. At 4,096 each layer saves a mask of 4,096² numbers
    in bf16, keys and values of all 32 heads, not of 8, and two seeds of 8 bytes instead of 24 bytes."""
    mistral = load("mistral-7b-v0.1").loaded
    below, at = (step_of(mistral, Workload(context=n, tokens=n, batch=1), Recipe()) for n in (4095, 4096))
    saved = [int(saved_in(step, step.graph.layers[0])) for step in (below, at)]
    each = 16 * 4096 + 4 * 32 * 128 + 4 * 8 * 128 + 8 * 14336 + 4 * 32 + 8
    assert saved[0] == 4095 * each + 24
    assert saved[1] == 4096 * (each + 2 * 2 * (32 - 8) * 128) + 2 * 4096**2 + 16


def test_the_command(run: Callable[..., Ran]) -> None:
    ran = run("train", "llama-3.1-8b", "--ctx", "4k")
    lines = ran.out.splitlines()
    assert ran.code == 0
    assert " ".join(lines[:3]).replace("≈ ", "") == (
        "llama-3.1-8b: a training step in bf16 (8 bytes per parameter), context 4,096, batch 1, adamw"
        " Peak: 75.4 GiB, while computing the loss."
    )
    csv = run("train", "llama-3.1-8b", "--ctx", "4k", "--csv").out.splitlines()
    assert next(line for line in csv[1:] if line.endswith(",peak")).startswith('"loss, backward"') and len(csv) > 6
    step = load("gpt2").train(ctx=64)
    assert [{**phase, "peak": row["peak"]} for phase, row in zip(step.phases, step.rows, strict=True)] == step.rows
    (facts,) = json.loads(run("train", "llama-3.1-8b", "--ctx", "4k", "--json").out)["models"]
    assert facts["peak_bytes"] == max(phase["total_bytes"] for phase in facts["phases"])
    assert facts["saved_bytes"] == sum(line["bytes"] for line in facts["lines"]) == 28_562_244_364
    parts = ("weights_bytes", "optimizer_bytes", "gradients_bytes", "saved_bytes", "temporary_bytes")
    assert all(phase["total_bytes"] == sum(phase[part] for part in parts) for phase in facts["phases"])


def test_what_would_make_it_fit(run: Callable[..., Ran]) -> None:
    """A context of 4,715 fits 80 GiB, one of 4,716 does not; with recomputed layers 20,560 tokens fit."""
    ran = run("train", "llama-3.1-8b", "--ctx", "8k", "--on", "80GiB", columns=120)
    assert "Does not fit in 80 GiB: it needs 106 GiB." in ran.out.replace("≈ ", "")
    most = "\nWithout any change, no batch fits at this context. Longest context at batch 1: 4,715 ("
    roomy = int(ran.out.partition(most)[2].partition(" with 17% to spare")[0].replace(",", ""))
    peaks = (load("llama-3.1-8b").train(ctx=tokens).peak_bytes for tokens in (roomy, roomy + 1))
    assert [1.17 * peak <= 80 * 2**30 for peak in peaks] == [True, False]
    assert "\nTry --loss chunked --recompute full" not in ran.out
    assert "\nTry --recompute full (60.7 GiB)." in ran.out
    row = next(line for line in ran.out.splitlines() if line.startswith(" --recompute full  "))
    assert row.split()[-3:] == ["25.0%", "20,560", "fits"]
    model, budget = load("llama-3.1-8b"), 80 * 1024**3
    assert model.train(ctx=4715).peak_bytes <= budget < model.train(ctx=4716).peak_bytes
    fits = run("train", "llama-3.2-1b", "--ctx", "4k", "--on", "80GiB").out
    assert "Fits in 80 GiB: peak" in fits and "phase" in fits


def test_several_models_have_a_row_each(run: Callable[..., Ran]) -> None:
    ran = run("train", "llama-3.2-1b", "qwen3-8b", "t5gemma-2b-2b", "--ctx", "1k")
    assert ran.code == 0 and "llama-3.2-1b" in ran.out and "qwen3-8b" in ran.out
    assert "t5gemma-2b-2b" in ran.err and " t5gemma-2b-2b" not in ran.out


def test_in_python_too() -> None:
    modern = {"model_type": "modernbert", "hidden_size": 64, "num_attention_heads": 4, "attention_dropout": 0.1}
    with pytest.raises(UsageError, match=r"measured with attention_dropout = 0\.1"):
        load(modern).train(ctx=64)
    with pytest.raises(UsageError, match="eager"):
        load("llama-3.1-8b").train(ctx=64, attention="flash")  # type: ignore[arg-type]
    eager = load("llama-3.1-8b").train(ctx=64, dtype="fp32", attention="eager")
    assert eager.peak_phase and json.dumps(eager.lines)


def test_rows_by_tensor_and_by_part_add_up(run: Callable[..., Ran]) -> None:
    model = load("qwen3-8b")
    for by in ("tensor", "part"):
        report = model.train(ctx=4096, by=by)
        assert sum(row["bytes"] for row in report.rows) == 34_378_302_316
    assert {row["part"] for row in report.rows} == {"attention", "MLP", "norms", "matmul inputs", "loss", "others"}
    tensors = run("train", "qwen3-8b", "--ctx", "4k", "--by", "tensor", columns=140).out
    row = next(line for line in tensors.splitlines() if line.startswith(" mlp.act "))
    assert row.split()[:5] == ["mlp.act", "B", "T", "F", "bf16"] and row.endswith("  mlp.down_proj")
    narrow = run("train", "qwen3-8b", "--ctx", "4k", "--by", "tensor", columns=80).out
    assert "attn.q_proj, k_proj, v_proj\n" in narrow and "axes" not in narrow.partition("\n\n")[2].partition("\n")[0]
    parts = {line["path"]: line["part"] for line in load("gpt2").train(ctx=64).lines}
    assert parts["blocks.*.attn.v"] == "attention" and parts["blocks.*.attn_add"] == parts["blocks.*.in"] == "norms"


def test_layers_of_several_kinds_share_rows_of_equal_tensors() -> None:
    """Every other of 48 layers has experts: attention has one row with the count 48; gradients differ by kind."""
    mixed = load("qwen3-30b-a3b", decoder_sparse_step=2).train(ctx=64)
    times = {line["path"]: line["count"] for line in mixed.lines}
    assert len(mixed.lines) == len(times) + 1  # other weights read the result of the norm before the MLP
    assert times["blocks.*.attn.values"] == 48
    assert times["blocks.*.mlp.up_proj"] == times["blocks.*.mlp.experts.sent"] == 24
    named = {each["phase"]: each["gradients_bytes"] for each in mixed.phases}
    dense, experts = 3 * 2048 * 6144, 128 * (3 * 2048 * 768 + 2048)  # layer 47 has experts, 46 is dense
    assert named["layer 0, backward"] - named["layer 1, backward"] < 2 * (dense + experts)
    assert named["layer 1, backward"] - named["layer 47, backward"] > 23 * 2 * (dense + experts)


def test_the_picture_is_the_table() -> None:
    from tfacct.reports.charts import train_chart

    llama, qwen = load("llama-3.1-8b"), load("qwen3-8b")
    one = llama.train(ctx=4096, on="80GiB")
    chart = train_chart([llama.loaded], one)
    assert chart.x == [each["phase"] for each in one.phases]
    heights = [sum(values) for values in zip(*chart.series.values(), strict=True)]
    assert heights == [each["total_bytes"] for each in one.phases] and chart.levels == [(80 * 1024**3, "80 GiB")]
    from tfacct.ledger.workload import Request
    from tfacct.reports.train import train
    from tfacct.training.recipe import Recipe as How

    both = train([llama.loaded, qwen.loaded], Request(ctx=4096), How())
    peaks = [facts["peak_bytes"] for facts in both.models]
    shown = train_chart([llama.loaded, qwen.loaded], both)
    assert [sum(values) for values in zip(*shown.series.values(), strict=True)] == peaks


def test_without_a_model_every_admitted_preset_has_a_row(run: Callable[..., Ran]) -> None:
    """Each with a supported step on text in its class's default recipe, and no other. Presets of images, and those with
    too few positions, are named."""
    ran = run("train", "--ctx", "1k", "--on", "80GiB")
    rows = [line.split()[0] for line in ran.out.splitlines() if line.startswith(" ")][1:]
    models = (presets.load(name) for name in presets.names())
    texts = [ours for ours in models if refusal(ours, Recipe()) is None and not reads_images(ours)]
    counted = [ours.name for ours in texts if not 0 < (ours.position_limit or 0) < 1024]
    assert ran.code == 0 and max(map(len, ran.out.splitlines())) <= 80
    assert sorted(row for row in rows if not row.startswith("─")) == sorted(counted)
    err = " ".join(ran.err.split())
    assert "training supports only images of the config's size" in err
    assert len(counted) < len(texts) and "(the context exceeds the position embedding)" in err
    assert re.search(r"\d+ of \d+ models fit in 80 GiB", " ".join(ran.out.split()))
