"""Custom models whose layers differ equal the same models as families. Kind: law, refusal."""

import copy
import json
import tomllib
from pathlib import Path

import pytest

from tests.helpers.custom import (
    DECODER,
    EXPERTS,
    LATENT,
    LATENTS,
    MIXED,
    TWINS,
    alike,
    as_toml,
    check_formula,
    check_refused,
    over,
)
from tests.helpers.models import tiny
from tfacct import load
from tfacct.architecture.parts import Attention, Experts, FeedForward, LatentAttention, Mamba
from tfacct.base.errors import TfacctError
from tfacct.ledger.groups import Ledger
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


def test_the_hybrid_is_of_a_mamba_and_a_mixtral() -> None:
    """Each of its blocks, as the family says it: 28 of Mamba, 4 of attention; 16 of experts, 16 dense."""
    own = load(EXAMPLES / "jamba_like.toml").loaded.ledger
    sizes = {"vocab_size": 65_536, "hidden_size": 4096, "num_hidden_layers": 32}
    heads = {"num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14_336}
    mamba = load({"model_type": "mamba", **sizes, "intermediate_size": 8192}).loaded.ledger
    dense = load({"model_type": "llama", **sizes, **heads}).loaded.ledger
    routed = {**sizes, **heads, "num_local_experts": 16, "num_experts_per_tok": 2}
    mixtral = load({"model_type": "mixtral", **routed, "sliding_window": None}).loaded.ledger
    for keys, tokens in ((999, 999), (999, 1), (999, 7)):
        at = Workload(context=keys, tokens=tokens, batch=3).axes()
        for count in (Ledger.flops, Ledger.states):
            expected = {}
            for number in range(32):
                mixer = "attn" if number % 8 == 4 else "mamba"
                other = {"attn": dense, "mamba": mamba}[mixer]
                network = mixtral if number % 2 else dense
                for part, ledger in ((mixer, other), ("mlp", network)):
                    at_path = f"blocks.{number}.{part}."
                    found = count(ledger, at, unfolded=True).items()
                    expected |= {path: value for path, value in found if path.startswith(at_path)}
            found = count(own, at, unfolded=True).items()
            assert {path: value for path, value in found if path.startswith("blocks")} == expected


def test_a_pattern_and_a_list_of_layers_say_the_same_hybrid() -> None:
    listed = tomllib.loads((EXAMPLES / "hybrid_decoder.toml").read_text(encoding="utf-8"))
    pattern = copy.deepcopy(listed)
    pattern["decoder"] = {"layers": 8, "pattern": ["ssm", "ssm", "ssm", "full"], "ssm": {"mamba": {"inner": 1536}}}
    alike(load_model("mine", pattern).ledger, load_model("mine", listed).ledger, (999, 999), (999, 1), (999, 7))


@pytest.mark.parametrize("name", TWINS)
def test_layers_that_differ_are_the_familys(name: str) -> None:
    alike(load_model("mine", TWINS[name]).ledger, tiny(name).ledger, (23, 23), (23, 13), (23, 1), (3, 3))


def test_smollm_leaves_every_fourth_layer_unrotated_and_olmo_norms_results() -> None:
    sizes = {"vocab_size": 61, "hidden_size": 24, "num_hidden_layers": 5, "intermediate_size": 71}
    sizes |= {"num_attention_heads": 6, "num_key_value_heads": 2, "max_position_embeddings": 53}
    mine = {
        "model": {"vocab": 61, "hidden": 24, "context": 53, "positions": "rotary", "tied": True},
        "attention": {"heads": 6, "kv_heads": 2},
        "feed_forward": {"width": 71, "gated": True},
        "norm": {"kind": "rms"},
        "decoder": {"layers": 5, "every": {"4": {"attention": {"rotated": False}}}},
    }
    smollm = load({"model_type": "smollm3", **sizes, "tie_word_embeddings": True}).loaded.ledger
    alike(load_model("mine", mine).ledger, smollm, (23, 23), (23, 1))
    mine = over(mine, norm__order="reordered", model__tied=None, decoder__every=None)
    olmo = load({"model_type": "olmo2", **sizes}).loaded.ledger
    own = load_model("mine", mine).ledger.parameters()
    scales = {f"blocks.*.attn.{name}_norm.weight" for name in "qk"}  # of all heads together, which own models have not
    assert own == {path: count for path, count in olmo.parameters().items() if path not in scales}


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


def test_an_encoder_has_kinds_too() -> None:
    file = over(DECODER, decoder=None, encoder={"layers": 4, "every": {"2": {"experts": EXPERTS}}})
    own = load_model("mine", over(file, model__positions="learned")).architecture
    assert [stack.numbers for stack in own.stacks] == [(0, 2), (1, 3)] and not own.ledger().states(
        Workload(5, 5).axes()
    )


REFUSED = [
    (over(LOCAL, decoder__layers=None), "required field 'decoder.layers' is missing"),
    (over(LOCAL, decoder__layers="six"), 'decoder.layers must be a whole number, not "six"'),
    (over(MIXED, decoder__layers=10**9), "decoder.layers must be at most 100,000"),
    (over(LOCAL, decoder__pattern=["loca", "full"]), "[decoder] has no 'local'", "did you mean loca"),
    (over(LOCAL, decoder__pattern=[]), "decoder.pattern must be a list of kinds, not []", '["local", "local", "full"]'),
    (over(LOCAL, decoder__pattern="local"), 'decoder.pattern must be a list of kinds, not "local"'),
    (over(DECODER, decoder__pattern=["a b", "c"]), 'decoder.pattern: "a b" is not a word'),
    (over(LOCAL, decoder__pattern=["local", 3]), "decoder.pattern: 3 is not a word"),
    (over(LOCAL, decoder__pattern=["local", "mamba"]), "'mamba' is a key or table of [decoder]", "another name"),
    (
        over(LOCAL, decoder__pattern=["local"] * 7),
        "decoder.pattern names 7 layers, and decoder.layers is 6",
        "use a shorter one",
    ),
    (
        over(LOCAL, decoder__pattern=["local", "full", "wide"]),
        "'full' and 'wide' have no tables, so their layers",
        "one kind may have no table",
    ),
    (over(DECODER, decoder__pattern=["local", "full"]), "'local' and 'full' have no table"),
    (over(DECODER, decoder__pattern=["local", "local"]), "'local' has no table, so all layers are identical"),
    (over(LOCAL, decoder__lcal={"attention": {"window": 3}}), "[decoder] has no 'lcal'", "did you mean local"),
    (
        over(LOCAL, decoder__local={"atention": {"window": 3}}),
        "[decoder.local] has no 'atention'",
        "did you mean attention",
    ),
    (
        over(LOCAL, decoder__local={"window": 3}),
        "[decoder.local] has no 'window'",
        "a key of [decoder.local.attention]",
    ),
    (over(DECODER, decoder__window=3), "[decoder] has no 'window'", "it is a key of [decoder.attention]"),
    (over(LOCAL, decoder__pattern=None), "[decoder] has no 'local'", 'decoder.pattern = ["local", …] would define it'),
    (
        over(LOCAL, decoder__local={"attention": {"widow": 3}}),
        "[decoder.local.attention] has no 'widow'",
        "mean window",
    ),
    (over(LOCAL, decoder__local=5), "[decoder.local] must be a table, not 5"),
    (over(LOCAL, decoder__local__attention__window=0), "decoder.local.attention.window must be at least 1, not 0"),
    (over(LOCAL, decoder__local__attention__heads=7), "[decoder.local]: attention.heads=7 must divide model.hidden=48"),
    (
        over(LOCAL, decoder__local__attention__kv_heads=4),
        "[decoder.local]: attention.kv_heads=4 must divide attention.heads=6",
    ),
    (over(LOCAL, decoder__every={"six": {}}), "[decoder.every.six]: 'six' is not a layer number", "[decoder.every.6"),
    (over(LOCAL, decoder__every={"attention": {"window": 4}}), "'attention' is not a layer number"),
    (over(LOCAL, decoder__every={"0": {"attention": {"window": 4}}}), "'0' is not a layer number"),
    (over(LOCAL, decoder__every=6), "[decoder.every] must be a table, not 6"),
    (
        over(LOCAL, decoder__every={"7": {"attention": {"window": 3}}}),
        "no layer of the 6 uses [decoder.every.7.attention]",
    ),
    (over(LOCAL, decoder__first={"2": {}}), "no layer of the 6 uses [decoder.first.2]", "leave it out"),
    (over(LOCAL, decoder__feed_forward={"width": 3}, decoder__every={"1": {"experts": EXPERTS}}), "nothing uses [feed"),
    (
        over(LOCAL, decoder__local={"experts": EXPERTS, "feed_forward": {"width": 3}}),
        "both describe the MLP of [decoder.local]",
    ),
    (
        over(DECODER, latent_attention=LATENT),
        "[attention] and [latent_attention] both describe the attention of [decoder]",
    ),
    (over(LATENTS, latent_attention__rope_dim=3), "latent_attention.rope_dim 3 must be even"),
    (over(LATENTS, model__positions="alibi"), '[latent_attention] with model.positions = "alibi" is not supported'),
    (over(LATENTS, encoder={"layers": 2}), "[latent_attention] does not work with an [encoder]"),
    (over(LATENTS, encoder={"layers": 2, "attention": {"heads": 6}}), "[latent_attention] with an [encoder] is not"),
    (over(LATENTS, latent_attention__kv_rank=None), "required field 'latent_attention.kv_rank' is missing"),
    (
        over(DECODER, model__latent_attention="absorbed"),
        "model.latent_attention has no effect without [latent_attention]",
    ),
    (over(DECODER, model__latent_attention="fast"), "model.latent_attention must be one of"),
    (
        over(DECODER, attention__rotated=False, model__positions="none"),
        "attention.rotated = false with model.positions",
    ),
    (over(DECODER, norm__order="sandwich", norm__shared=True), 'norm.shared with norm.order = "sandwich"'),
    (over(LOCAL, decoder__full={"mamba": {"inner": 8, "layers": [2]}}), "[decoder.full.mamba] has no 'layers'"),
    (over(DECODER, decoder__every={"1": {"mamba": {"inner": 8}}}), "nothing uses [attention]"),
    (
        over(LOCAL, decoder__full={"mamba": {"inner": 8}}, decoder__every={"3": {"experts": EXPERTS}}),
        "[decoder.every.3.experts] has no effect: layers of Mamba have",
        "mlp = true",
    ),
    (over(LOCAL, decoder__full={"mamba": {"inner": 8}}, norm__shared=True), "with norm.shared is not supported"),
    (over(LOCAL, model__positions="relative"), 'attention.window with model.positions = "relative"'),
    (
        over(DECODER, model__positions="relative", decoder__first={"1": {"attention": {"heads": 3}}}),
        "the same number of heads in all layers",
    ),
]


@pytest.mark.parametrize(("file", "says"), [(f, s) for f, *s in REFUSED], ids=[s[0][:50] for _, *s in REFUSED])
def test_refusals(run, tmp_path: Path, file: dict, says: list[str]) -> None:
    check_refused(run, tmp_path / "mine.toml", file, says)


def test_what_the_refusals_are_said_of_is_fine() -> None:
    for file in (LOCAL, LATENTS):
        assert load(file).params().total > 0


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


def test_a_hybrid_has_mamba_where_its_pattern_says() -> None:
    own = load_model("mine", MIXED).architecture
    assert [stack.numbers for stack, _ in own.having(Mamba)] == [(3,)]
