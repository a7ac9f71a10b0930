"""Every family against the class that others wrote: parameters, FLOPs and caches, module by module."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.configs import FAMILIES as STRATEGIES
from tests.configs import SMALL, configs
from tests.conftest import asked
from tfacct import families, presets
from tfacct.reference import stranger
from tfacct.subject import Subject, subject
from tfacct.workload import Workload

WITH_CLASS = [name for name in presets.names() if not name.startswith("cs336")]  # the course's model has no class


def agree(ours: Subject, *works: Workload) -> None:
    """Parameters by tensor, FLOPs by module and cached elements by layer, all equal."""
    model, ledger = stranger.build(ours.raw, ours.config.class_head), ours.ledger
    table, tensors = ours.config.class_paths(), ours.config.hf_tensors
    params = {name: count for name, count in stranger.parameters(model).items() if count}  # 0 shared experts are none
    assert stranger.renamed(ledger.parameters(unfolded=True), table, tensors) == params
    keeps = ours.config.class_keeps().ledger()
    for work in works:
        at = work.axes()
        flops, cached = stranger.run(model, **work.sizes)
        assert stranger.renamed(ledger.flops(at, unfolded=True), table) == flops
        assert stranger.kept(keeps.states(at, unfolded=True)) == cached


LAYER_COUNTS = ("n_layer", "num_hidden_layers", "num_layers", "num_decoder_layers", "encoder_layers", "decoder_layers")


def with_few_layers(whole: Subject) -> Subject:
    """The first seven layers: as many as it takes to see each kind of layer that a preset has."""
    counts = [name for name in LAYER_COUNTS if name in whole.raw]
    fields = {**whole.raw, **{count: min(whole.raw[count], 7) for count in counts}}
    if fields.get("layer_types"):
        fields["layer_types"] = fields["layer_types"][:7]
    few = subject(whole.name, fields)
    assert [stack.block for stack in few.architecture.stacks] == [stack.block for stack in whole.architecture.stacks]
    return few


@pytest.mark.parametrize("name", WITH_CLASS)
def test_every_preset_agrees_module_by_module(name: str) -> None:
    """Of the deep ones the first layers; the parameters of all layers meet their total in test_numbers.py."""
    few = with_few_layers(presets.load(name))
    agree(few, *(asked(few, Workload(11, tokens, 3)) for tokens in (7, 11)))


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_CLASS)
def test_every_preset_agrees_in_all_its_layers(name: str) -> None:
    whole = presets.load(name)
    agree(whole, *(asked(whole, Workload(11, tokens, 3)) for tokens in (7, 11)))


def test_a_wrong_path_table_would_be_seen() -> None:
    """The comparison is by module: moving one product's FLOPs to another module is a difference."""
    ours = presets.load("gpt2")
    theirs = stranger.renamed(ours.ledger.flops(Workload(7, 7).axes(), unfolded=True), ours.config.hf_paths)
    flops, _ = stranger.run(stranger.build(ours.raw), batch=1, tokens=7, context=7)
    assert theirs == flops
    theirs["transformer.h.0.attn"] += 2
    theirs["transformer.h.1.attn"] -= 2
    assert theirs != flops and sum(theirs.values()) == sum(flops.values())


def random_agreement(family: str, examples: int) -> None:
    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(config=configs(family), batch=SMALL, tokens=SMALL, old=st.integers(0, 13), source=st.integers(1, 14))
    def check(config: dict, batch: int, tokens: int, old: int, source: int) -> None:
        """A prefill, a chunk behind `old` tokens and a decode step: windows are 2 to 9 tokens."""
        ours, steps = subject("random", config), {(0, tokens), (old, tokens), (old, 1)}
        agree(ours, *dict.fromkeys(asked(ours, Workload(sum(step), step[1], batch), source) for step in steps))

    check()


FAMILIES = [name for name in families.names() if families.config_class(name).hf_paths]


def test_every_family_with_a_class_is_drawn() -> None:
    assert sorted(STRATEGIES) == FAMILIES


@pytest.mark.parametrize("family", FAMILIES)
def test_random_configs_agree(family: str) -> None:
    random_agreement(family, 20)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_many_random_configs_agree(family: str) -> None:
    random_agreement(family, 200)


LAYERS = {"hidden_size": 128, "num_hidden_layers": 2}
REQUIRED = {
    "gpt2": {"vocab_size": 37, "n_embd": 48, "n_layer": 2, "n_head": 4},
    "llama": {"vocab_size": 37, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4},
    "mistral": {"vocab_size": 37, **LAYERS, "num_attention_heads": 64, "sliding_window": None},
    "phi": {"vocab_size": 37, **LAYERS, "num_attention_heads": 4},
    "phi3": {"vocab_size": 32064, **LAYERS, "num_attention_heads": 4},  # its class's token of padding is the 32,000th
    "deepseek_v2": {"vocab_size": 37, **LAYERS, "num_attention_heads": 4, "num_experts_per_tok": 3},
    "deepseek_v3": {"vocab_size": 37, **LAYERS, "num_attention_heads": 128},
    "gpt_neox": {"vocab_size": 37, **LAYERS, "num_attention_heads": 4},
    "bloom": {"vocab_size": 37, "hidden_size": 60, "n_layer": 2, "n_head": 6},
    "bert": {"vocab_size": 37, **LAYERS, "num_attention_heads": 4},
    "t5": {"vocab_size": 37, "d_model": 48, "num_layers": 2, "num_heads": 5},
    "bart": {"vocab_size": 37, "d_model": 48, "encoder_layers": 2, "decoder_layers": 3},
    "marian": {"vocab_size": 37, "d_model": 48, "encoder_layers": 2, "decoder_layers": 3, "pad_token_id": 0},
}
"""What has no default, or none that fits 64 heads of a hidden size of 128."""


@pytest.mark.parametrize("family", FAMILIES)
def test_absent_fields_take_the_classs_defaults(family: str) -> None:
    """What a config leaves out is what the class would take, and every such field is named."""
    required = REQUIRED.get(family, {"vocab_size": 37, **LAYERS, "num_attention_heads": 64})
    ours = subject("bare", {"model_type": family, **required})
    agree(ours, *(asked(ours, Workload(9, tokens, 2)) for tokens in (5, 9)))
    theirs = stranger.build(ours.raw, ours.config.class_head).config
    longest = {"bloom": 2048, "t5": 512}  # whose classes have none
    assert ours.context == getattr(theirs, "max_position_embeddings", longest.get(family))
    read = set(ours.config.__class__.model_fields) - ours.config.uncounted
    assert set(ours.defaulted) == {n for n in read if n not in required and getattr(ours.config, n) is not None}
