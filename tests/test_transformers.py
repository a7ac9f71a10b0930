"""Every family against the class that others wrote: parameters, FLOPs and caches, module by module."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.configs import FAMILIES as STRATEGIES
from tests.configs import SMALL, configs
from tfacct import families, presets
from tfacct.reference import stranger
from tfacct.subject import Subject, subject
from tfacct.workload import Workload

WITH_CLASS = [name for name in presets.names() if not name.startswith("cs336")]  # the course's model has no class


def agree(ours: Subject, *works: Workload) -> None:
    """Parameters by tensor, FLOPs by module and cached elements by layer, all equal."""
    model, ledger = stranger.build(ours.raw), ours.ledger
    table, tensors = ours.config.class_paths(), ours.config.hf_tensors
    params = {name: count for name, count in stranger.parameters(model).items() if count}  # 0 shared experts are none
    assert stranger.renamed(ledger.parameters(unfolded=True), table, tensors) == params
    keeps = ours.config.class_keeps().ledger()
    for work in works:
        at = work.axes()
        flops, cached = stranger.run(model, batch=work.batch, tokens=work.tokens, context=work.context)
        assert stranger.renamed(ledger.flops(at, unfolded=True), table) == flops
        assert stranger.kept(keeps.states(at, unfolded=True)) == cached


@pytest.mark.parametrize("name", WITH_CLASS)
def test_every_preset_agrees_module_by_module(name: str) -> None:
    agree(presets.load(name), Workload(context=11, tokens=7, batch=3))


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
    @given(config=configs(family), batch=SMALL, tokens=SMALL, old=st.integers(0, 13))
    def check(config: dict, batch: int, tokens: int, old: int) -> None:
        """A prefill, a chunk behind `old` tokens and a decode step: windows are 2 to 9 tokens."""
        steps = {(0, tokens), (old, tokens), (old, 1)}
        agree(subject("random", config), *(Workload(context=sum(step), tokens=step[1], batch=batch) for step in steps))

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


@pytest.mark.parametrize("family", FAMILIES)
def test_absent_fields_take_the_classs_defaults(family: str) -> None:
    """What a config leaves out is what the class would take, and every such field is named."""
    required = {
        "gpt2": {"vocab_size": 37, "n_embd": 48, "n_layer": 2, "n_head": 4},
        "llama": {"vocab_size": 37, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4},
        "qwen2": {"vocab_size": 37, "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 64},
        "gemma": {"vocab_size": 37, "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 64},
        "mistral": {
            "vocab_size": 37,
            "hidden_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 64,
            "sliding_window": None,
        },
        "qwen3": {"vocab_size": 37, "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 64},
    }[family]
    ours = subject("bare", {"model_type": family, **required})
    agree(ours, Workload(context=9, tokens=5, batch=2))
    theirs = stranger.build(ours.raw).config
    assert ours.context == theirs.max_position_embeddings
    read = set(ours.config.__class__.model_fields) - ours.config.uncounted
    assert set(ours.defaulted) == {n for n in read if n not in required and getattr(ours.config, n) is not None}
