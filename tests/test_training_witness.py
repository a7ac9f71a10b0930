"""A training step against the transformers classes themselves, on meta dressed as CUDA: random small models.

Every byte that autograd saves is compared by the modules that asked for it, and the most bytes alive at any operator
of a step, to the byte.
"""

from dataclasses import replace

import pytest

from tests.conftest import TINY, tiny
from tests.training_configs import drawn
from tfacct.accounts.timeline import peak, timeline
from tfacct.loading.model import subject
from tfacct.reports.training import refusal, step_of
from tfacct.training.recipe import Recipe
from tfacct.witness.step import by_modules, grouped, known_modules

pytest.importorskip("transformers")
FAMILIES = ("llama", "qwen2", "qwen3", "mistral", "gpt2", "mixtral", "qwen3_moe", "gemma", "olmo2")
FURTHER = ("opt", "gemma2", "gemma3_text", "phi3", "phi", "gpt_neox", "qwen2_moe")
NEAR = (
    *("bloom", "cohere", "cohere2", "cwm", "deepseek_v3", "dots1", "ernie4_5", "exaone4", "glm", "glm4"),
    *("glm4_moe", "gpt_bigcode", "gpt_oss", "granite", "helium", "hunyuan_v1_dense", "hyperclovax"),
    *("kimi_k2", "ministral3", "nemotron", "olmo", "olmo3", "olmoe", "seed_oss", "smollm3", "stablelm"),
    *("starcoder2", "youtu"),
)
SINCE = (
    "codegen",
    "falcon",
    "glm4_moe_lite",
    "gpt_neo",
    "gptj",
    "granitemoe",
    "minimax_m2",
    "mpt",
    "persimmon",
    "vaultgemma",
)
ENCODERS = (
    *("albert", "bert", "camembert", "distilbert", "electra", "eurobert", "gte", "modernbert", "mpnet", "nomic_bert"),
    *("roberta", "xlm-roberta"),
)
LAST = (
    *("arcee", "exaone_moe", "flex_olmo", "granitemoeshared", "hy_v3", "mellum", "ministral", "solar_open"),
    *("internlm3", "iquestcoder", "phimoe"),
    *("data2vec-text", "ernie", "roberta-prelayernorm", "xlm-roberta-xl"),
)
HYBRIDS = (
    *("afmoe", "apertus", "llama4_text", "lfm2", "lfm2_moe", "nanochat"),
    *("qwen3_5_moe_text", "qwen3_5_text", "qwen3_next"),
)
IMAGES = ("deit", "vit")
PAIRS = (
    *("bart", "blenderbot", "blenderbot-small", "m2m_100", "marian", "mbart", "mt5", "pegasus", "plbart", "t5"),
    "umt5",
)
EVERY = FAMILIES + FURTHER + NEAR + SINCE + LAST + HYBRIDS + ENCODERS + IMAGES + PAIRS
ACCUMULATING = FAMILIES + FURTHER


def test_every_family_that_counts_a_step_is_measured_here() -> None:
    """A family that inherits from a measured one counts no step until its own class was measured."""
    assert sorted(EVERY) == sorted(name for name in TINY if tiny(name).config.trains)


def check(family: str, seed: int, *, accumulate: bool = False, hold_logits: bool = False, peaks: bool = True) -> None:
    config, recipe, work = drawn(family, seed)
    model = subject(family, config, {}, None)
    accumulate = accumulate and "accumulate" in model.config.trains
    recipe = replace(recipe, gradient_accumulation=1 + accumulate, keep_logits=hold_logits)
    if refusal(model, recipe) is not None:
        recipe = replace(recipe, dtype="bf16")
    step = step_of(model, work, recipe)
    from tfacct.reference import keeping

    how = {"checkpoint": recipe.recompute, "auto": model.config.ending.auto}
    run = keeping.trainable(model.of_class, recipe.attention, recipe.dtype, **how)
    saved = keeping.kept(run, work.batch, work.tokens, work.source)
    held = {"accumulate": accumulate, "holds_logits": hold_logits}
    assert step.kept() == sum(each.bytes for each in saved), (config, recipe, work)
    if recipe.recompute == "none":
        known = known_modules(model)
        assert by_modules(model, step, known) == grouped(saved, known), (config, recipe, work)
    if not peaks:
        return
    most = keeping.peak(run, work.batch, work.tokens, source=work.source, **held)
    found = peak(instant for instant in timeline(step) if instant.name != "optimizer step")
    assert found.total == most.bytes, (config, recipe, work, found, most)


def test_the_attention_that_is_counted_where_none_is_named_is_the_one_that_transformers_takes() -> None:
    """A class without sdpa takes eager by itself, and refuses the other."""
    import transformers

    for family in EVERY:
        model = tiny(family)
        made = transformers.AutoConfig.for_model(model.of_class["model_type"])
        theirs = getattr(transformers, model.config.ending.auto)._model_mapping[type(made)]
        assert Recipe().of(model).attention == ("sdpa" if theirs._supports_sdpa else "eager"), family
        assert Recipe(attention="sdpa").of(model).attention == "sdpa"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(20))
def test_a_step_is_the_classes_own(family: str, seed: int) -> None:
    check(family, seed)


@pytest.mark.parametrize("family", FURTHER)
@pytest.mark.parametrize("seed", range(6))
def test_a_step_of_a_further_family_is_its_classes_own(family: str, seed: int) -> None:
    check(family, seed, hold_logits=seed == 0)


@pytest.mark.parametrize("family", NEAR + SINCE + LAST + HYBRIDS + ENCODERS + IMAGES + PAIRS)
@pytest.mark.parametrize("seed", range(2))
def test_a_step_of_a_near_relative_is_its_classes_own(family: str, seed: int) -> None:
    check(family, seed, hold_logits=seed == 0, accumulate=seed == 1)


@pytest.mark.parametrize(
    ("family", "seed"),
    [("gpt_oss", 233), ("gpt_oss", 282), ("kimi_k2", 101), ("kimi_k2", 239), ("granitemoe", 453), ("dots1", 505)],
)
def test_what_experts_hold_at_their_fullest(family: str, seed: int) -> None:
    """In fp32 the gradient of each result, and none beside a router; what it read while a block runs again."""
    check(family, seed, accumulate=family == "dots1")


@pytest.mark.parametrize(("family", "seed"), [("vit", 119), ("vit", 126), ("deit", 112)])
def test_gradients_of_learned_tokens_are_slices_of_the_streams(family: str, seed: int) -> None:
    """Of one image: all of it stays with them, beside an earlier batch's too."""
    check(family, seed, accumulate=True)


@pytest.mark.parametrize("seed", [101, 200])
def test_distances_on_their_way_to_rows_of_a_table_at_their_fullest(seed: int) -> None:
    """Beside a source much longer than the model is wide: a sum that is kept, and five more of its size."""
    check("umt5", seed)


@pytest.mark.parametrize("family", FURTHER + NEAR + SINCE + LAST + HYBRIDS + ENCODERS + IMAGES + PAIRS)
def test_what_random_configs_keep_is_what_their_class_keeps(family: str) -> None:
    """Which is quicker to ask than for the peak as well: twenty configs of each family, with those above."""
    for seed in range(600, 614 if family in FURTHER else 618):
        check(family, seed, peaks=False)


@pytest.mark.slow
@pytest.mark.parametrize("family", EVERY)
def test_many_steps_are_the_classes_own(family: str) -> None:
    for seed in range(100, 300):
        check(family, seed, hold_logits=seed % 5 == 0, accumulate=family not in FAMILIES + FURTHER and seed % 7 == 0)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(300, 303))
def test_logits_that_the_caller_keeps(family: str, seed: int) -> None:
    check(family, seed, hold_logits=True)


@pytest.mark.parametrize("family", ACCUMULATING)
@pytest.mark.parametrize("seed", range(300, 302))
def test_gradients_of_earlier_batches(family: str, seed: int) -> None:
    check(family, seed, accumulate=True, hold_logits=seed % 2 == 0)


@pytest.mark.parametrize(("family", "seed"), [("gpt2", 115), ("mixtral", 235)])
def test_a_block_that_runs_again_at_its_fullest(family: str, seed: int) -> None:
    """The network's end, beside attention's result; scores, beside a gradient that was there before."""
    check(family, seed, hold_logits=True)
