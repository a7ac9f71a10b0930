"""Steps under autocast whose blocks are written out: with adapters, with attention that runs again, of any family."""

import random
from dataclasses import replace

import pytest

from tests.test_lora_witness import ATTENTION, BLOCKS, EXPERTS, asked_name
from tests.training_configs import drawn
from tfacct import load
from tfacct.accounts.timeline import peak, timeline
from tfacct.base.errors import UsageError
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel, subject
from tfacct.profiles.chunked import CHUNKS
from tfacct.profiles.written import Trace
from tfacct.reports.lora import chosen, products, read
from tfacct.reports.training import refusal, step_of
from tfacct.training.recipe import Recipe
from tfacct.witness.step import by_modules, grouped, known_modules

pytest.importorskip("transformers")
LLAMAS = ("internlm3", "iquestcoder", "llama", "mistral", "qwen2", "qwen3")
NORMED_BEHIND = ("olmo2", "olmo3")
ENCODERS = (
    "bert",
    "camembert",
    "data2vec-text",
    "distilbert",
    "electra",
    "modernbert",
    "mpnet",
    "roberta",
    "xlm-roberta",
)
IMAGES = ("deit", "vit")
FURTHER = ("gemma", "gemma2", "gemma3_text", "phi")
"""Families with norms around parts, or whose parts stand side by side, with adapters and attention that runs again."""
SINCE = (
    *("cwm", "ernie4_5", "granite", "hunyuan_v1_dense", "hyperclovax", "ministral3", "olmo", "opt", "seed_oss"),
    *("ministral", "smollm3", "starcoder2"),
)
"""Those of Llama's kind, and of others whose parts run one after the other, with adapters and attention again."""
ATTENDING = ("bloom", "falcon", "gpt2", "gpt_neo", "gpt_neox", "helium", "olmo2", "olmo3", "phi3", *SINCE)
"""Further families whose attention was measured that runs again."""
IN_CHUNKS = (
    *(
        "bloom",
        "cwm",
        "deepseek_v3",
        "dots1",
        "ernie4_5",
        "gemma",
        "gemma2",
        "gemma3_text",
        "gpt2",
        "gpt_neox",
        "gpt_oss",
    ),
    *("granite", "helium", "hyperclovax", "internlm3", "iquestcoder", "kimi_k2", "llama", "ministral3", "mistral"),
    *(
        "mixtral",
        "olmo",
        "olmo2",
        "olmo3",
        "opt",
        "phi",
        "phi3",
        "qwen2",
        "qwen2_moe",
        "qwen3",
        "qwen3_moe",
        "seed_oss",
    ),
    *("smollm3", "starcoder2", "youtu"),
)
"""Families that were measured with adapters and a loss in chunks, both."""
LENT = ("bloom", "falcon", "gpt2", "gpt_neox", "helium", "olmo2", "olmo3", "phi3", *SINCE)
"""Further families that were measured with adapters."""


def check(
    family: str, seed: int, *, lora: bool = False, selective: bool = False, chunked: bool = False, **fields: int
) -> bool:
    """Bytes by the modules that asked for them, and the most bytes alive at any operator; False if it is refused.
    `fields` of the config that are not drawn."""
    import torch

    from tfacct.reference import keeping
    from tfacct.reference.chunked import loss_in_chunks

    config, recipe, work = drawn(family, seed)
    config |= fields
    pick = random.Random(seed)
    if lora:
        depth, width = (next(name for name in names if name in config) for names in (BLOCKS, ("n_embd", "hidden_size")))
        config |= {depth: max(2, config[depth]), "vocab_size": 2 * config[width] + seed}
    for kinds in ("layer_types", "mlp_layer_types") if lora and depth == "num_hidden_layers" else ():
        if len(config.get(kinds) or ()) != config[depth] and (kinds == "layer_types" or kinds in config):
            config[kinds] = None
    model = subject(family, config, {}, None)
    loop = {"gradient_accumulation": 1 + (pick.random() < 0.2), "keep_logits": pick.random() < 0.2}
    recipe = replace(recipe, dtype="bf16", weights_dtype="fp32", **loop)
    if selective:
        recipe = replace(recipe, recompute="attention")
    if chunked:
        config["vocab_size"] += 900 * (seed % 3)
        model = subject(family, config, {}, None)
        recipe = replace(recipe, loss="chunked", keep_logits=False)
    modules: list[str] = []
    if lora:
        recipe, modules = _lent(model, recipe, pick)
    if refusal(model, recipe) is not None:
        return False
    step, auto = step_of(model, work, recipe), model.config.ending.auto
    how = {"checkpoint": recipe.recompute, "weights": "fp32", "auto": auto}
    run = keeping.trainable(model.of_class, recipe.attention, "bf16", **how)
    if lora:
        from tfacct.reference import adapting

        adapting.adapted(run, int((recipe.lora or "").split(":")[0]), modules, dropout=recipe.lora_dropout)
    if chunked:
        run = loss_in_chunks(run, CHUNKS, torch.bfloat16)
    saved = keeping.kept(run, work.batch, work.tokens, work.source)
    assert step.kept() == sum(each.bytes for each in saved), (config, recipe, work)
    if recipe.recompute == "none" and not chunked:
        known = known_modules(model)
        assert by_modules(model, step, known) == grouped(saved, known), (config, recipe, work)
    held = {"accumulate": recipe.accumulates, "holds_logits": recipe.keep_logits}
    most = keeping.peak(run, work.batch, work.tokens, source=work.source, **held)
    found = peak(instant for instant in timeline(step) if instant.name != "optimizer step")
    assert found.total == most.bytes, (config, recipe, work, found, most)
    return True


def _lent(model: LoadedModel, recipe: Recipe, pick: random.Random) -> tuple[Recipe, list[str]]:
    every = list(dict.fromkeys(asked_name(model, path) for path in products(model)))
    if model.family in EXPERTS and "lora_networks" not in model.config.trains:
        every = [name for name in every if name in ATTENTION]
    names = pick.sample(every, pick.randint(1, len(every)))
    lora = f"{pick.choice([1, 4, 7])}:{','.join(names)}"
    on = chosen(model, read(lora))
    modules = sorted({path.split("*.")[-1] for ours, path in model.config.paths().items() if ours in on})
    return replace(recipe, lora=lora, lora_dropout=pick.choice([0.0, 0.0, 0.1])), modules


@pytest.mark.parametrize("family", LLAMAS)
@pytest.mark.parametrize("seed", range(2))
def test_adapters_under_autocast_are_pefts_own(family: str, seed: int) -> None:
    pytest.importorskip("peft")
    check(family, seed, lora=True)


@pytest.mark.parametrize("family", LLAMAS)
@pytest.mark.parametrize("lora", [False, True])
def test_attention_runs_again_under_autocast(family: str, lora: bool) -> None:
    if lora:
        pytest.importorskip("peft")
    check(family, 3, lora=lora, selective=True)


@pytest.mark.parametrize(
    ("family", "seed"),
    [
        ("bloom", 101),
        ("falcon", 101),
        ("falcon", 104),
        ("gpt_neox", 111),  # a dropout lets go of what block 0 reads, and embeddings stay
        ("olmo2", 103),  # embeddings that require a gradient, which no norm reads first, are cast once
        ("olmo2", 146),  # a cast that is there while the loss is computed
        ("olmo3", 292),  # angles of block 0 alone, which nothing there needs
        ("phi", 133),  # the frozen head's bias is cast, and gone
    ],
)
def test_adapters_on_products_of_other_decoders(family: str, seed: int) -> None:
    pytest.importorskip("peft")
    assert check(family, seed, lora=True)


@pytest.mark.parametrize("family", (*FURTHER, "gpt2", "hunyuan_v1_dense", "opt", "phi3", "smollm3", "starcoder2"))
def test_adapters_on_a_further_family_are_pefts_own(family: str) -> None:
    pytest.importorskip("peft")
    assert check(family, 102, lora=True)  # phi: embeddings stay beside what a dropout leaves of them


@pytest.mark.parametrize(
    ("family", "seed"),
    [
        ("gemma", 112),  # what was made again for a product is gone where its bias's gradient is summed
        *(("gemma2", 100), ("gemma3_text", 101), ("phi", 102)),
        *(("gpt_neox", 100), ("phi3", 102), ("gpt2", 100), ("opt", 101), ("ernie4_5", 100), ("seed_oss", 103)),
        ("gpt_neo", 102),  # a number that stands for no score
        ("bloom", 103),  # the caller has what values were weighted by in the block in front, which keeps it not
        ("falcon", 101),
        ("helium", 155),  # an angle is gone where the gradient that it made is cast
        ("olmo2", 124),  # attention of block 0 keeps the embeddings
    ],
)
def test_attention_of_a_further_family_runs_again(family: str, seed: int) -> None:
    assert check(family, seed, selective=True)


def test_attention_runs_again_beside_adapters_between_norms() -> None:
    pytest.importorskip("peft")
    assert check("gemma2", 101, lora=True, selective=True)


@pytest.mark.parametrize(
    ("family", "seed"),
    [
        ("olmo2", 100),
        ("olmo3", 101),
        ("olmo2", 154),  # angles and positions go with the first product of block 0, once it runs again
        ("olmo3", 103),
    ],
)
def test_parts_that_read_the_stream_itself(family: str, seed: int) -> None:
    assert check(family, seed)


@pytest.mark.parametrize("family", ENCODERS + IMAGES)
@pytest.mark.parametrize("seed", range(2))
def test_a_step_of_an_encoder_under_autocast_is_its_classes_own(family: str, seed: int) -> None:
    check(family, seed)


@pytest.mark.parametrize(
    ("family", "seed"),
    [
        ("bert", 112),  # the embeddings stay while blocks run
        ("bert", 116),  # the loss takes logarithms in 16 bits, and a copy in fp32
        ("bert", 137),  # the head's casts beside those of all blocks, which run again
        ("roberta", 126),  # what a block read goes with its first product, once it runs again
        ("distilbert", 160),  # what attention summed is gone where its block norms a sum
        ("mpnet", 100),  # the gradient of scores of distances, cast to fp32 in each block, and summed
        ("modernbert", 107),  # the first block, without a norm, lets go of what it read with its first product
        ("modernbert", 150),  # the loss's copy in fp32, before it begins backwards
    ],
)
def test_instants_of_an_encoder_that_decide(family: str, seed: int) -> None:
    assert check(family, seed)


@pytest.mark.slow
@pytest.mark.parametrize("family", NORMED_BEHIND + ENCODERS + IMAGES)
def test_many_steps_written_out(family: str) -> None:
    done = [check(family, seed) for seed in range(100, 300)]
    # Narrow tables are refused, and classes of ModernBERT.
    assert sum(done) >= (50 if family in ("electra", "modernbert") else 150)


def test_the_loss_of_an_encoder_under_autocast_by_hand() -> None:
    """torch asks for BERT's logarithms in the dtype of the logits, 2 bytes, and casts them for the choice of the
    targets: 4 more, both kept; B · T = 8, V = 100. In fp32 alone it is 4 bytes."""
    fields = {"vocab_size": 100, "hidden_size": 48, "num_attention_heads": 3, "num_hidden_layers": 2}
    model, work = load("bert-base", **fields, intermediate_size=70).loaded, Workload(context=4, tokens=4, batch=2)
    lines = {}
    for weights, dtype in (("fp32", "bf16"), (None, "fp32")):
        step = step_of(model, work, Recipe(dtype, weights_dtype=weights))
        back = step.run.back
        kept = (line for line in step.lines_of(back) if "B T V" in line.spec)
        lines[dtype] = sum(step.bytes(back, [line]) for line in kept)
    assert lines == {"bf16": 8 * 100 * (2 + 4), "fp32": 8 * 100 * 4}


def test_tables_narrower_than_the_model_are_refused_under_autocast() -> None:
    with pytest.raises(UsageError, match="no rule for this kind of encoder"):
        load("electra-small", architectures=["ElectraForMaskedLM"]).train(ctx=64, weights_dtype="fp32")


@pytest.mark.slow
@pytest.mark.parametrize("family", LLAMAS + FURTHER)
@pytest.mark.parametrize("how", ["adapters", "attention again", "both"])
def test_many_steps_with_adapters_or_attention_again(family: str, how: str) -> None:
    if how != "attention again":
        pytest.importorskip("peft")
    done = [check(family, seed, lora=how != "attention again", selective=how != "adapters") for seed in range(100, 300)]
    assert sum(done) >= 150


def test_what_an_adapter_reads_in_fp32_stays_to_its_end() -> None:
    pytest.importorskip("peft")
    assert check("phi3", 108, lora=True)


@pytest.mark.parametrize("family", ["gemma2", "llama", "olmo2", "opt", "phi", "qwen2_moe"])
def test_a_loss_in_chunks_beside_adapters_under_autocast(family: str) -> None:
    """A frozen head's weight is cast anew whenever a chunk runs."""
    pytest.importorskip("peft")
    assert check(family, 101, lora=True, chunked=True)


@pytest.mark.slow
@pytest.mark.parametrize("family", IN_CHUNKS)
def test_many_losses_in_chunks_beside_adapters(family: str) -> None:
    pytest.importorskip("peft")
    done = [check(family, seed, lora=True, chunked=True) for seed in range(100, 200)]
    assert sum(done) >= 90


@pytest.mark.slow
@pytest.mark.parametrize("family", LENT)
def test_many_steps_with_adapters(family: str) -> None:
    pytest.importorskip("peft")
    done = [check(family, seed, lora=True) for seed in range(100, 300)]
    assert sum(done) >= (100 if family == "falcon" else 200)  # whose blocks are not counted that run again


@pytest.mark.slow
@pytest.mark.parametrize("family", ATTENDING)
def test_many_steps_with_attention_again(family: str) -> None:
    assert all(check(family, seed, selective=True) for seed in range(100, 300))


@pytest.mark.parametrize(
    ("name", "batch", "context", "more", "kept", "most"),
    [
        ("modernbert-large", 2, 4096, {}, 14_242_349_588, 19_126_794_008),
        ("modernbert-base", 4, 1000, {"attention": "eager", "recompute": "full"}, 1_210_192_900, 3_437_614_344),
        ("gemma-2-9b", 1, 5000, {"attention": "eager", "lora": "16"}, 211_208_660_812, 258_631_557_964),
        ("phi-2", 1, 2048, {"lora": "16"}, 20_455_834_380, 32_507_802_504),
        ("phi-2", 1, 2048, {"loss": "chunked"}, 19_848_545_032, 31_801_000_848),
        ("pythia-6.9b", 1, 2048, {"recompute": "attention"}, 16_446_963_724, 54_891_987_080),
    ],
)
def test_published_sizes_meet_what_was_measured(
    name: str, batch: int, context: int, more: dict[str, str], kept: int, most: int
) -> None:
    """Read off the classes on meta: bytes kept, and the most alive without an optimizer."""
    step = load(name).train(ctx=context, batch=batch, weights_dtype="fp32", optimizer="none", **more)
    assert (step.kept_bytes, step.peak_bytes) == (kept, most)


def test_experts_are_refused_with_the_reason() -> None:
    """F.grouped_mm takes no fp32 weight beside a bf16 input; transformers casts the input to the weight's dtype."""
    import torch

    weight, ends = torch.ones(2, 8, 16), torch.tensor([1, 2], dtype=torch.int32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.nn.functional.grouped_mm(torch.ones(2, 8), weight, offs=ends).dtype == torch.float32
        with pytest.raises(RuntimeError, match="same dtype"):
            torch.nn.functional.grouped_mm(torch.ones(2, 8).bfloat16(), weight, offs=ends)
    with pytest.raises(UsageError, match="not been measured on minimax_m2 beside a stream in fp32"):
        load("minimax-m2").train(ctx=64, weights_dtype="fp32")


def test_a_frozen_weight_is_cast_and_kept_where_a_gradient_goes_through_it() -> None:
    """Of llama-3.1-8b's block with adapters on q_proj alone: all seven products' casts, 2 bytes a weight, and the
    adapter's two, but in block 0, in front of whose q_proj no gradient goes; nor does one through its k and v."""
    work = Workload(context=64, tokens=64, batch=1)
    step = step_of(load("llama-3.1-8b").loaded, work, Recipe(weights_dtype="fp32", lora="16:q_proj"))
    casts = {"attn.k_proj": 1024, "attn.v_proj": 1024, "attn.o_proj": 4096, "attn.q_proj": 4096}
    attn = sum(2 * 4096 * rows for rows in casts.values())
    mlp = 3 * 2 * 4096 * 14336
    adapter = 2 * 16 * 2 * 4096
    others = 31 * (attn + mlp + adapter)
    first = 2 * 4096 * 4096 + mlp + 2 * 16 * 4096  # o_proj, the network, and lora_B
    head = 2 * 4096 * 128_256
    found = ((part, line) for part in step.run.sections for line in step.lines_of(part))
    casts_kept = (part.count * step.bytes(part, [line]) for part, line in found if line.path.endswith("weight_cast"))
    assert sum(casts_kept) == others + first + head


def test_adapters_beside_weights_in_fp32_are_in_fp32() -> None:
    with pytest.raises(UsageError, match="peft makes adapters in fp32 beside weights in fp32"):
        load("llama-3.1-8b").train(ctx=64, weights_dtype="fp32", lora=16, adapter_dtype="bf16")


def test_a_tensor_goes_with_the_last_that_refers_to_it() -> None:
    trace = Trace(frozenset())
    one = trace.new(("B", "T", "D"))
    other = one
    del one
    assert trace.there["B T D", "work"] == 1
    del other
    assert trace.there["B T D", "work"] == 0
