"""Every family against the class that others wrote: parameters, FLOPs and caches, module by module."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tfacct import families, presets
from tfacct.reference import stranger
from tfacct.subject import Subject, subject
from tfacct.workload import Workload

WITH_CLASS = [name for name in presets.names() if not name.startswith("cs336")]  # the course's model has no class


def agree(ours: Subject, work: Workload) -> None:
    """Parameters by tensor, FLOPs by module and cached elements by layer, all equal."""
    model = stranger.build(ours.raw)
    flops, cached = stranger.run(model, batch=work.batch, tokens=work.tokens, context=work.context)
    ledger, at = ours.ledger, work.axes()
    table = ours.config.hf_paths
    assert stranger.renamed(ledger.parameters(unfolded=True), table) == stranger.parameters(model)
    assert stranger.renamed(ledger.flops(at, unfolded=True), table) == flops
    assert ledger.states(at, unfolded=True) == cached


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


SMALL = st.integers(1, 6)


@st.composite
def configs(draw: st.DrawFn, family: str) -> dict:
    """Random valid configs: every optional field present, absent or null where the class allows it."""
    heads = draw(SMALL) * (kv := draw(SMALL))
    even = 2 * draw(SMALL)
    if family == "gpt2":
        fields = {
            "n_embd": heads * even,
            "n_layer": draw(st.integers(1, 3)),
            "n_head": heads,
            "vocab_size": draw(st.integers(7, 40)),
        }
        fields["n_positions"] = draw(st.integers(12, 40))
        optional = {"n_inner": st.none() | st.integers(1, 40), "tie_word_embeddings": st.booleans()}
    else:
        # The class insists on hidden divisible by heads even where head_dim is given.
        fields = {
            "hidden_size": heads * 2 * draw(SMALL),
            "num_hidden_layers": draw(st.integers(1, 3)),
            "num_attention_heads": heads,
            "vocab_size": draw(st.integers(7, 40)),
            "intermediate_size": draw(st.integers(1, 40)),
            "num_key_value_heads": kv,
        }
        if family not in ("gemma", "mistral") and draw(st.booleans()):  # whose classes want a number
            fields["num_key_value_heads"] = None
        optional = {"head_dim": st.just(even), "tie_word_embeddings": st.booleans()}
        if family == "mistral":
            fields["sliding_window"] = None
        if family in ("qwen3", "gemma"):
            optional["attention_bias"] = st.booleans()
        if family == "llama":
            optional |= {"attention_bias": st.booleans(), "mlp_bias": st.booleans()}
            optional["head_dim"] = st.none() | st.just(even)
    for name, values in optional.items():
        if draw(st.booleans()):
            fields[name] = draw(values)
    return {"model_type": family, **fields}


def random_agreement(family: str, examples: int) -> None:
    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(config=configs(family), batch=SMALL, tokens=SMALL, old=st.integers(0, 6))
    def check(config: dict, batch: int, tokens: int, old: int) -> None:
        agree(subject("random", config), Workload(context=tokens + old, tokens=tokens, batch=batch))

    check()


FAMILIES = [name for name in families.names() if families.config_class(name).hf_paths]


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
