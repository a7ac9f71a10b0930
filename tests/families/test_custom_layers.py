"""Custom models whose layers differ equal the same models as families. Kind: law, refusal."""

import copy
import json
import tomllib
from pathlib import Path

import pytest

from tests.helpers.custom import (
    BESIDE,
    DECODER,
    DELTA,
    EXPERTS,
    LATENT,
    LATENTS,
    MAMBA2,
    MIXED,
    PLAIN,
    TWINS,
    alike,
    as_toml,
    check_formula,
    hybrid,
    over,
)
from tests.helpers.models import tiny
from tfacct import load
from tfacct.architecture.parts import Attention, Experts, FeedForward, LatentAttention, Mamba
from tfacct.base.errors import TfacctError
from tfacct.families import custom_tables as tables
from tfacct.ledger.workload import Workload
from tfacct.loading.model import load_model

EXAMPLES = Path(__file__).parents[2] / "examples"
LOCAL = over(
    DECODER, decoder__layers=6, decoder__pattern=["local", "local", "full"], decoder__local__attention__window=4
)
EXAMPLES_OF = [
    ("gemma_like", "gemma-3-1b"),
    ("deepseek_like", "deepseek-v3"),
    ("qwen3_next_like", "qwen3-next-80b-a3b"),
]


@pytest.mark.parametrize(("name", "preset"), EXAMPLES_OF)
def test_the_examples_are_the_published_models(name: str, preset: str) -> None:
    file = EXAMPLES / f"{name}.toml"
    assert len(file.read_text(encoding="utf-8").splitlines()) <= 35
    own, published = load(file).loaded, load(preset).loaded
    alike(own.ledger, published.ledger, (4096, 4096), (4096, 1), (4096, 700))
    assert sum(own.ledger.parameters().values()) == published.expected


def test_a_pattern_and_a_list_of_layers_say_the_same_hybrid() -> None:
    listed = tomllib.loads((EXAMPLES / "hybrid_decoder.toml").read_text(encoding="utf-8"))
    pattern = copy.deepcopy(listed)
    pattern["decoder"] = {"layers": 8, "pattern": ["ssm", "ssm", "ssm", "full"], "ssm": {"mamba": {"inner": 1536}}}
    alike(load_model("mine", pattern).ledger, load_model("mine", listed).ledger, (999, 999), (999, 1), (999, 7))


@pytest.mark.parametrize("name", TWINS)
def test_a_model_of_parts_is_the_familys(name: str) -> None:
    steps = ((150, 150), (23, 23), (23, 13), (150, 70), (23, 1), (3, 3), (1, 1))
    alike(load_model("mine", TWINS[name]).ledger, tiny(name).ledger, *steps)


def blocks(file: dict) -> list[str]:
    """What each layer has, in short."""
    words = []
    for block in load_model("mine", file).architecture.blocks():
        attention, network = block.attention, block.find(Experts) or block.find(FeedForward)
        mixer = {Attention: "a", LatentAttention: "l", type(None): "m"}[type(attention)]
        window = "" if block.window is None else str(block.window)
        words.append(f"{mixer}{window}{'-' if network is None else network.width}")
    return words


def test_the_rarer_stands_over_the_more_frequent_and_the_first_over_all() -> None:
    assert blocks(LOCAL) == ["a496", "a496", "a96"] * 2
    file = over(
        LOCAL,
        decoder__feed_forward__width=7,
        decoder__every={"2": {"feed_forward": {"width": 20}}, "4": {"feed_forward": {"width": 40}}},
        decoder__first={"1": {"feed_forward": {"width": 1}}, "3": {"feed_forward": {"width": 3}}},
    )
    assert blocks(file) == ["a41", "a43", "a3", "a440", "a47", "a20"]
    experts = over(LOCAL, decoder__every={"3": {"experts": EXPERTS}})
    assert blocks(experts) == ["a496", "a496", "a16"] * 2
    # a pattern is repeated up to the last layer, and may end in the middle
    assert blocks(over(LOCAL, decoder__layers=4)) == ["a496", "a496", "a96", "a496"]
    latent = over(LOCAL, decoder__first={"1": {"latent_attention": LATENT}})
    assert blocks(latent) == ["l96", "a496", "a96", "a496", "a496", "a96"]
    mamba = over(LOCAL, decoder__full={"mamba": {"inner": 12}})
    assert blocks(mamba) == ["a496", "a496", "m-"] * 2
    assert blocks(over(mamba, decoder__full__mamba__mlp=True))[2] == "m96"


def test_where_kinds_of_layers_are() -> None:
    file = over(DECODER, decoder=None, encoder={"layers": 4, "every": {"2": {"experts": EXPERTS}}})
    own = load_model("mine", over(file, model__positions="learned")).architecture
    assert [stack.numbers for stack in own.stacks] == [(0, 2), (1, 3)] and not own.ledger().states(
        Workload(5, 5).axes()
    )
    own = load_model("mine", MIXED).architecture
    assert [stack.numbers for stack, _ in own.having(Mamba)] == [(3,)]
    own = over(
        DECODER,
        decoder={
            "layers": 4,
            "mamba2": {**PLAIN["mamba2"], "layers": [1]},
            "delta_net": {**PLAIN["delta_net"], "layers": [0, 3]},
        },
    )
    blocks = load_model("mine", own).architecture.blocks()
    assert [block.sublayers[0].name for block in blocks] == ["delta", "mamba", "attn", "delta"]


def test_keys_of_kinds_are_set_shown_and_swept_by_dotted_name(run, tmp_path: Path) -> None:
    file = str(tmp_path / "mine.toml")
    Path(file).write_text(as_toml(LOCAL), encoding="utf-8")
    ran = run(
        "models", file, "--set", "decoder.local.attention.kv_heads=2", "--set", "decoder.first.1.feed_forward.width=5"
    )
    words = " ".join(ran.out.split())
    assert "decoder.local.attention.window given 4" in words, ran.out
    assert "decoder.local.attention.kv_heads set 2" in words and "attention.kv_heads defaulted 6" in words
    assert "decoder.first.1.feed_forward.width set 5" in words
    # 2 · 4 windowed layers · min(S, W) · 6 heads · 8 · 2 bytes, and 2 full ones of 32 keys
    swept = run("sweep", file, "--set", "decoder.local.attention.window=1,2", "--metric", "kv_cache_bytes", "--json")
    points = [point["kv_cache_bytes"] for point in json.loads(swept.out)["models"][0]["lines"]]
    assert points == [2 * 6 * 8 * 2 * (4 * window + 2 * 32) for window in (1, 2)]
    for wrong in ("decoder.lokal.attention.window=3", "decoder.local.window=3"):
        ran = run("flops", file, "--set", wrong)
        assert ran.code == 2 and "no field" in ran.err, ran.err
    ran = run("flops", file, "--set", "decoder.every.x.attention.window=3")
    assert ran.code == 2 and "'x' is not a layer number" in ran.err


def test_a_value_of_none_takes_away_what_a_common_table_says() -> None:
    file = over(DECODER, attention__window=4, attention__qk_norm="rms", decoder__first={"1": {"attention": {}}})
    file["decoder"]["first"]["1"]["attention"] = {"window": "none", "qk_norm": "none", "head_dim": "none"}
    first, last = load_model("mine", file).architecture.blocks()
    assert (first.attention.window, first.attention.qk_norm, first.attention.head_dim) == (None, None, 8)
    assert last.attention.window == 4 and last.attention.qk_norm is not None
    with pytest.raises(TfacctError, match=r"decoder\.first\.1\.attention\.heads must be a whole number"):
        load(over(DECODER, decoder__first={"1": {"attention": {"heads": "none"}}}))


def test_words_for_layers_that_differ(run, tmp_path: Path) -> None:
    """Letters of latents and of heads that share keys, and both in the header of the cache."""
    file = str(tmp_path / "mine.toml")
    Path(file).write_text(as_toml(over(MIXED, model__latent_attention=None)), encoding="utf-8")
    ran = run("formula", file, columns=200)
    assert "Natt = 6 query heads in " in ran.out and "Nlat = 5 query heads in " in ran.out, ran.out
    assert "--set model.latent_attention=FORM" in " ".join(ran.out.split())
    assert "as built (2 KV heads or latent)" in run("memory", "--kv", file, columns=120).out
    assert "--set model.latent_attention=absorbed" in " ".join(run("flops", file, "-v").out.split())
    two = over(
        LOCAL, decoder__every={"2": {"experts": EXPERTS}}, decoder__first={"4": {"experts": {**EXPERTS, "active": 3}}}
    )
    Path(file).write_text(as_toml(two), encoding="utf-8")
    words = " ".join(run("flops", file, "-v").out.split())
    assert "In 4 of 6 layers, a token uses 3 of 8 experts. In 1 of 6 layers, a token uses 2 of 8" in words


@pytest.mark.parametrize("of", ["flops", "params", "kv", "train"])
def test_the_formula_of_layers_that_differ_is_the_count(of: str) -> None:
    own = load_model("mine", over(MIXED, decoder__every=None))  # whose total would take long to read back
    check_formula(own, of, Workload(29, 29))


CHANGED = {
    "mamba2": {
        "heads": 8, "head_dim": 11, "groups": 2, "state": 129, "kernel": 5, "chunk": 7, "bias": True,
        "conv_bias": False, "gated_norm": False, "mlp": False,
    },
    "delta_net": {
        "heads": 7, "key_heads": 2, "key_dim": 11, "value_dim": 11, "kernel": 5, "decay_rank": 9, "chunk": 7,
    },
    "short_convolution": {"kernel": 5, "bias": True},
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGED)
def test_every_key_of_a_mixer_is_read(name: str) -> None:
    """A key that changes nothing would be a lie in the docs."""

    def said(own: dict) -> tuple:
        ledger = load_model("mine", hybrid(**{name: own})).ledger
        at = Workload(23, 23).axes()
        return ledger.parameters(), ledger.flops(at), ledger.pointwise(at), ledger.states(at)

    plain = said(PLAIN[name])
    for key, value in CHANGED[name].items():
        assert said({**PLAIN[name], key: value}) != plain, key
    keys = {*tables.PARTS[name].model_fields}
    assert {*CHANGED[name]} == keys - tables.REFERENCE_ONLY
    assert said({**PLAIN[name], **({"activation": "relu"} if "activation" in keys else {})}) == plain


@pytest.mark.parametrize("name", tables.LISTED)
def test_a_list_of_layers_and_a_pattern_say_the_same(name: str) -> None:
    listed = over(DECODER, decoder={"layers": 3, name: {**PLAIN[name], "layers": [0, 2]}})
    pattern = {"layers": 3, "pattern": ["other", "full"], "other": {name: PLAIN[name]}}
    alike(
        load_model("mine", listed).ledger, load_model("mine", over(DECODER, decoder=pattern)).ledger, (23, 23), (23, 1)
    )


def test_heads_that_are_rotated_in_part() -> None:
    whole = load_model("mine", over(DECODER, attention__rotary_dim=8)).architecture
    assert whole == load_model("mine", DECODER).architecture
    odd = load_model("mine", over(DECODER, attention__rotary_dim=4, attention__head_dim=9)).architecture
    assert odd.blocks()[0].attention.axes()["Hr"] == 4
    own = over(LATENTS, model__positions="none", latent_attention__rope_dim=3)
    assert load_model("mine", own).architecture.blocks()[0].attention.rotary is None


def test_chunks_of_two_lengths_are_counted_and_derived_and_have_no_formula(run, tmp_path: Path) -> None:
    own = hybrid(mamba2={**MAMBA2, "chunk": 8}, delta_net={**DELTA, "chunk": 16})
    (tmp_path / "mine.toml").write_text(as_toml(own), encoding="utf-8")
    file = str(tmp_path / "mine.toml")
    ran = run("formula", file)
    assert ran.code == 2 and "Pc is 8 in some parts and 16 in others" in ran.err
    ran = run("flops", file, "--ctx", "29", "--explain")
    words = " ".join(ran.out.split())
    assert "Nc1 = 4 chunks of new tokens, T / Pcmam rounded up" in words, ran.out
    assert "Nc2 = 2 chunks of new tokens, T / Pcdel rounded up" in words
    own["decoder"]["kind1"]["delta_net"]["chunk"] = 8
    (tmp_path / "mine.toml").write_text(as_toml(own), encoding="utf-8")
    assert "Nc = 4 chunks of new tokens, T / Pc rounded up" in " ".join(run("formula", file).out.split())


@pytest.mark.parametrize("of", ["flops", "params", "kv"])
def test_the_formula_of_all_mixers_is_the_count(of: str) -> None:
    chunked = {"chunk": 8}
    own = load_model("mine", hybrid(**{**BESIDE, "mamba2": {**MAMBA2, **chunked}, "delta_net": {**DELTA, **chunked}}))
    check_formula(own, of, Workload(32, 32))
