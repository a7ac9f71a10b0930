"""Wrong numbers and tracebacks of the past. Kind: golden, refusal."""

from pathlib import Path

import pytest

from tests.families import TINY
from tests.helpers.models import tiny
from tests.helpers.weight_files import folder
from tfacct import load
from tfacct.architecture.parts import Experts
from tfacct.base.errors import TfacctError
from tfacct.loading.model import load_model

FULL, SLIDING = "full_attention", "sliding_attention"


@pytest.mark.parametrize("kind", [FULL, SLIDING])
def test_more_layers_of_one_kind_stay_of_that_kind(kind: str) -> None:
    """The family's own pattern does not take their place."""
    config = {**TINY["gpt_oss"], "num_hidden_layers": 4, "layer_types": [kind] * 4}
    for count in (2, 4, 7):
        blocks = load_model("mine", config, {"num_hidden_layers": count}).architecture.blocks()
        assert [block.window is None for block in blocks] == [kind == FULL] * count


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "qwen2_moe", "qwen3_moe"])
@pytest.mark.parametrize("window", [0, 1])
def test_a_window_of_nothing_is_refused_where_it_is_switched_on(family: str, window: int) -> None:
    off = {**TINY[family], "sliding_window": window, "use_sliding_window": False}
    assert all(block.window is None for block in load_model("mine", off).architecture.blocks())
    with pytest.raises(TfacctError, match=f"sliding_window = {window} must be at least 2"):
        load_model("mine", {**off, "use_sliding_window": True, "max_window_layers": 1})


def test_layers_ahead_have_experts_even_where_no_block_has() -> None:
    dense = tiny("deepseek_v3", mtp=True, first_k_dense_replace=TINY["deepseek_v3"]["num_hidden_layers"])
    some = tiny("deepseek_v3", mtp=True)
    ahead = [
        {path: n for path, n in model.ledger.parameters().items() if path.startswith("mtp.")} for model in (dense, some)
    ]
    assert ahead[0] == ahead[1] and any(".experts." in path for path in ahead[0])


def test_the_whole_model_says_whether_its_head_is_tied() -> None:
    text = {name: value for name, value in TINY["gemma3_text"].items() if name != "tie_word_embeddings"}
    both = {"model_type": "gemma3", "text_config": {**text, "tie_word_embeddings": True}}
    tied, untied = (load_model("mine", {**both, "tie_word_embeddings": tie}) for tie in (True, False))
    table = text["vocab_size"] * text["hidden_size"]
    assert sum(untied.ledger.parameters().values()) - sum(tied.ledger.parameters().values()) == table
    inside = {"model_type": "gemma3", "text_config": {**text, "tie_word_embeddings": False}}
    assert load_model("mine", inside).ledger.parameters() == tied.ledger.parameters()


def test_the_whole_model_says_which_class_it_is() -> None:
    both = {"model_type": "gemma3", "text_config": TINY["gemma3_text"]}
    assert load_model("mine", {**both, "architectures": ["Gemma3ForConditionalGeneration"]}).unknown == ()
    with pytest.raises(TfacctError, match="is not a class of gemma3_text"):
        load_model("mine", {**both, "architectures": ["ShieldGemma2ForImageClassification"]})


@pytest.mark.parametrize(
    ("family", "old", "part"), [("phi", "partial_rotary_factor", 0.25), ("gpt_neox", "rotary_pct", 0.6)]
)
def test_the_rotary_fraction_is_read_in_both_spellings(family: str, old: str, part: float) -> None:
    config = {name: value for name, value in TINY[family].items() if name != old}
    head = tiny(family).architecture.attentions[0].axes()["H"]
    for fields in ({old: part}, {"rope_parameters": {"partial_rotary_factor": part, "rope_theta": 10000.0}}):
        assert load_model("mine", {**config, **fields}).architecture.attentions[0].axes()["Hr"] == int(part * head)
    with pytest.raises(TfacctError, match="partial_rotary_factor must be above 0"):
        load_model("mine", {**config, "rope_parameters": {"partial_rotary_factor": "half"}})


def test_fewer_experts_than_a_token_is_sent_to_are_refused_in_arrays() -> None:
    pytest.importorskip("numpy")
    with pytest.raises(TfacctError, match="is more than E"):
        load("qwen3-30b-a3b").evaluate("active_params", E=[4])


def test_a_field_is_set_under_any_of_its_names() -> None:
    named = {name: value for name, value in TINY["mixtral"].items() if name != "num_local_experts"}
    for name, other in (("num_experts", "num_local_experts"), ("num_local_experts", "num_experts")):
        model = load_model("mine", {**named, name: 6}, {other: 9})
        assert model.architecture.stacks[0].block.find(Experts).experts == 9
    assert load_model("mine", TINY["gpt2"], {"num_hidden_layers": 3}).architecture.stacks[0].count == 3


def test_rope_parameters_that_are_no_object_are_refused(run, tmp_path: Path) -> None:
    file = folder(tmp_path, {**TINY["gemma3_text"], "rope_parameters": {"full_attention": "default"}}) / "config.json"
    ran = run("params", str(file))
    assert ran.code == 2 and "rope_parameters.full_attention must be an object with fields" in ran.err


@pytest.mark.parametrize("preset", ["gemma-2-2b", "gpt-oss-20b"])
def test_the_masked_attention_of_a_step_is_solved_across_the_window(run, preset: str) -> None:
    """The number of visible pairs of a chunk changes its slope twice."""
    arguments = ("--for", "ctx", "--until", "share.attn_scores_values=0.3", "--tokens", "300", "--masked", "--json")
    facts = run("solve", preset, *arguments).models[0]
    model = load(preset)
    below, above = (
        model.flops(ctx=facts[side], tokens=300, masked=True).models[0]["components"]["attn_scores_values"]
        / model.flops(ctx=facts[side], tokens=300, masked=True).total
        for side in ("solution", "beyond")
    )
    assert below <= 0.3 < above
