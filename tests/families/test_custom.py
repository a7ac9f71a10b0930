"""Custom models in TOML: the lecture's numbers, and the same models as families. Kind: golden, law, refusal."""

import copy
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.families import SHAPES
from tests.helpers.custom import (
    COMBINABLE,
    DECODER,
    DELTA,
    EQUIVALENTS,
    EXPERTS,
    LATENT,
    LATENTS,
    LECTURE,
    MAMBA2,
    MIXED,
    PLAIN,
    alike,
    as_toml,
    check_formula,
    hybrid,
    over,
)
from tests.helpers.models import tiny
from tfacct import load
from tfacct.architecture.parts import Attention, Experts, FeedForward, LatentAttention
from tfacct.base.errors import TfacctError
from tfacct.families import custom_tables as tables
from tfacct.ledger.workload import Workload
from tfacct.loading import presets
from tfacct.loading.model import load_model


def saved(folder: Path, tables: dict[str, Any]) -> str:
    """The path of a custom model's file."""
    (file := folder / "mine.toml").write_text(as_toml(tables), encoding="utf-8")
    return str(file)


AT = {"ctx": 20, "source": 20, "batch": 16}
PRODUCTS = 2 * 16 * 20 * 1_024 * 2_048  # each of q, k, v, o, and each of the MLP's two


def test_both_readings_of_the_lectures_flops(run) -> None:
    """As its notebook runs, and with the encoder's MLPs called; text and JSON say which."""
    as_it_runs, called = 198_182_174_720, 214_288_302_080
    assert as_it_runs == 6 * (5_394_923_520 + 13_474_201_600) + 84_967_424_000
    assert called == as_it_runs + 6 * 2 * 320 * 4_194_304
    # per layer 4 matmuls of attention and PV, 2·16·20·20·2,048; the decoder's twice, and its MLP
    values = 2 * 16 * 20 * 20 * 2_048
    assert (4 * PRODUCTS + values, 10 * PRODUCTS + 2 * values) == (5_394_923_520, 13_474_201_600)
    words = run("flops", LECTURE, "--batch", "16", "--ctx", "20", "--source", "20").out_line
    assert f"As it runs: {as_it_runs:,} FLOPs. encoder.mlp is stored but never called (called = false)." in words
    assert f"If it were called: {called:,} FLOPs." in words
    (facts,) = run("flops", LECTURE, "--batch", "16", "--json").models
    assert (facts["total_flops"], facts["total_flops_if_called"]) == (as_it_runs, called)
    assert facts["never_called"] == ["encoder.blocks.*.mlp"]
    facts = load(LECTURE, **{"encoder.feed_forward.called": True}).flops(**AT).models[0]
    assert (facts["total_flops"], facts["total_flops_if_called"], facts["never_called"]) == (called, None, [])
    assert load(LECTURE).flops(**AT, train=True).models[0]["total_flops_if_called"] == 3 * called


def test_sides_of_their_own() -> None:
    own = tiny("custom, encoder post-norm")
    assert not own.has_cache and own.source is None
    with pytest.raises(TfacctError, match="not 1 new token of 20"):
        load(SHAPES["custom, encoder post-norm"]).flops(ctx=20, decode=True)
    model = load(over(BOTH, encoder__attention__heads=4, decoder__feed_forward={"width": 5}))
    reading, writing = (stacks[0].block for stacks in (model.architecture.encoder.stacks, model.architecture.stacks))
    assert (reading.attention.heads, reading.find(FeedForward).width) == (4, 96)
    assert (writing.attention.heads, writing.find(FeedForward).width) == (6, 5)


BOTH = {**DECODER, "encoder": {"layers": 3}}
LOCAL = over(
    DECODER, decoder__layers=6, decoder__pattern=["local", "local", "full"], decoder__local__attention__window=4
)
FILES = {"decoder": DECODER, "both": BOTH, "local": LOCAL, "latents": LATENTS, "mixed": MIXED}
REFUSED = json.loads(Path(__file__).with_name("custom_refusals.json").read_text(encoding="utf-8"))
"""Each: a file, keys of it that are set, or null if they are left out, and words of the error."""


@pytest.mark.parametrize(("of", "keys", "says"), [(of, keys, says) for of, keys, *says in REFUSED], ids=str)
def test_a_slip_is_refused_by_name(run, tmp_path: Path, of: str, keys: dict[str, Any], says: list[str]) -> None:
    """As a file and as tables in Python: an error of at most two lines."""
    file = over(FILES[of], **{key.replace(".", "__"): value for key, value in keys.items()})
    ran = run("flops", saved(tmp_path, file))
    assert (ran.code, ran.out) == (2, "") and ran.err.startswith("error: mine"), ran.err
    assert len(ran.err.splitlines()) <= 2 and all(words in ran.err for words in says), ran.err
    with pytest.raises(TfacctError):
        load(file)


def test_the_files_of_the_refusals_are_valid() -> None:
    """Each refused file differs from these in one place."""
    for file in (
        *FILES.values(),
        over(BOTH, decoder__attention__window=4, decoder__cross_attention={"bias": True}),
        over(DECODER, feed_forward=None, experts=EXPERTS),
        over(BOTH, decoder__experts=EXPERTS),
        over(BOTH, model__source_vocab=65, model__source_context=7),
        over(BOTH, model__source_hidden=65, attention__head_dim=8),
    ):
        assert load(file).params().total > 0


def test_set_by_dotted_name(run, tmp_path: Path) -> None:
    file = saved(tmp_path, BOTH)
    for sets, says in {
        "attention.heads=7": "attention.heads=7 must divide model.hidden=48",
        **{f"{name}=8": f"no field '{name}' in a custom model" for name in ("attention.head", "attention", "heads")},
        "encoder.feed_forward.called=maybe": 'encoder.feed_forward.called must be true or false, not "maybe"',
    }.items():
        ran = run("params", file, "--set", sets)
        assert (ran.code, ran.out) == (2, "") and says in ran.err and len(ran.err.splitlines()) <= 2, sets
    saved(tmp_path, DECODER)
    ran = run("params", file, "--set", "attention.heads=8", "--set", "feed_forward.width=7", "--json")
    (facts,) = ran.models
    assert facts["set"] == {"attention.heads": 8, "feed_forward.width": 7}
    # 2 tables, last norm; 2 · (q, k, v, o of 48·48, two matrices, two norms)
    assert facts["total_params"] == 2 * 64 * 48 + 48 + 2 * (4 * 48**2 + 2 * 48 * 7 + 2 * 48)
    swept = run("sweep", file, "--set", "attention.kv_heads=1,2,6", "--metric", "kv_cache_bytes", "--json")
    points = [point["kv_cache_bytes"] for point in swept.models[0]["lines"]]
    assert points == [2 * 2 * 32 * kv * 8 * 2 for kv in (1, 2, 6)]
    assert run("params", file, "--set", "encoder.layers=2").code == 0  # and now it has an encoder
    # what is null is absent
    assert run("params", file, "--set", "norm.kind=null").code == 2


def test_defaults_are_shown_by_dotted_name() -> None:
    assert load_model("mine", DECODER).defaulted == {
        **dict.fromkeys(("model.tied", "model.head_bias", "model.scale_embedding", "norm.shared"), False),
        **dict.fromkeys(("norm.embedding", "attention.bias", "attention.out_bias", "attention.gate"), False),
        **{"feed_forward.gated": False, "feed_forward.bias": False, "feed_forward.called": True, "norm.final": True},
        **{"norm.order": "pre", "attention.kv_heads": 6, "attention.head_dim": 8, "attention.scores": "product"},
        "attention.rotated": True,
    }
    sides = load_model("mine", over(BOTH, encoder__attention={"heads": 4, "bias": True})).defaulted
    assert sides["encoder.attention.kv_heads"] == 4 and sides["decoder.attention.kv_heads"] == 6
    assert sides["encoder.attention.out_bias"] is True and sides["decoder.attention.out_bias"] is False


def test_every_key_is_read() -> None:
    """The documentation lists no key that changes nothing."""
    assert {key for key in tables.KEYS if "*" not in key} == load_model("mine", DECODER).config.settable()
    base = over(BOTH, decoder__cross_attention={}, model__positions="learned")
    local = {"attention": {"window": 5}}
    of_experts = {"experts": 9, "active": 3, "width": 17, "shared": 9, "shared_gate": True, "bias": True}
    of_latents = {"heads": 7, "kv_rank": 9, "nope_dim": 5, "rope_dim": 4, "value_dim": 5, "q_rank": 9, "bias": True}
    changes: list[tuple[dict, dict[str, object]]] = [
        (base, {"model.vocab": 65, "model.hidden": 96, "model.context": 33, "model.tied": True, "norm.final": False}),
        (base, {"model.head_bias": True, "model.scale_embedding": True, "model.source_vocab": 64}),
        (base, {"model.source_context": 31, "attention.heads": 3, "attention.kv_heads": 2, "attention.head_dim": 10}),
        (base, {f"attention.{key}": True for key in ("bias", "out_bias", "gate")}),
        (base, {"attention.qk_norm": "rms", "attention.scores": "distance", "feed_forward.width": 97}),
        (base, {"feed_forward.gated": True, "feed_forward.bias": True, "feed_forward.norm": "rms"}),
        (base, {"feed_forward.called": False, "norm.kind": "layer", "norm.order": "post", "norm.shared": True}),
        (base, {"norm.embedding": True, "encoder.layers": 2, "decoder.layers": 3, "model.positions": "none"}),
        (base, {"decoder.attention.window": 5, "decoder.cross_attention.scores": "distance"}),
        (base, {"decoder.cross_attention.bias": True, "decoder.cross_attention.out_bias": True}),
        (over(base, attention__head_dim=8), {"model.source_hidden": 50}),
        (over(BOTH, model__positions="relative"), {"model.buckets": 31}),
        (
            over(DECODER, feed_forward=None, experts={**EXPERTS, "shared": 8}),
            {f"experts.{key}": value for key, value in of_experts.items()},
        ),
        (LATENTS, {f"latent_attention.{key}": value for key, value in of_latents.items()}),
        (LATENTS, {"model.latent_attention": "absorbed"}),
        (
            over(DECODER, decoder__layers=3, decoder__local=local, decoder__pattern=["full", "local"]),
            {"attention.rotary_dim": 4, "attention.rotated": False, "decoder.pattern": ["local", "full"]}
            | {"decoder.local.attention.window": 6},
        ),
    ]
    at = Workload(context=23, tokens=13, batch=9, source=17).axes()

    def counts(file: dict, **sets: object) -> tuple:
        ledger = load_model("mine", file, sets).ledger
        return ledger.parameters(), ledger.flops(at), ledger.pointwise(at), ledger.states(at)

    for file, values in changes:
        for key, value in values.items():
            parts = slice(1 if key in ("model.context", "model.source_context") else 4)
            assert counts(file, **{key: value})[parts] != counts(file)[parts], key
    sided = {key for key in tables.KEYS if key.count(".") >= 2 and "cross" not in key} | {"encoder.pattern"}
    there = {key for _, values in changes for key in values} - {"decoder.local.attention.window"}
    there |= {key for key in tables.KEYS if tables.is_reference_only(key)} | sided | {"attention.window"}
    assert there == set(tables.KEYS)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)
PLACES = st.sampled_from([*tables.KEYS, *tables.TABLES, "model.", "decoder.attention.heads.x", "x.y", "", "."])


@settings(max_examples=100, deadline=None, database=None)
@given(path=PLACES, value=JUNK, base=st.sampled_from([DECODER, BOTH, {"model": {}}, LECTURE]))
def test_junk_is_counted_or_refused(path: str, value: object, base: dict | str) -> None:
    """In the file and with --set: a count, or one error."""
    file = base if isinstance(base, dict) else tomllib.loads((presets.folder() / f"{base}.toml").read_text())
    file = {name: table for name, table in copy.deepcopy(file).items() if name not in ("source", "expect")}
    for attempt in (
        lambda: load_model("mine", set_in(file, path, value)),
        lambda: load_model("mine", file, {path: value}),
    ):
        try:
            assert attempt().ledger.parameters()
        except TfacctError as error:
            assert error.message.startswith("mine: ") and "\n" not in error.message


def set_in(file: dict, path: str, value: object) -> dict:
    *outer, name = path.split(".")
    file = copy.deepcopy(file)
    at = file
    for word in outer:
        if not isinstance(at.setdefault(word, {}), dict):
            return file
        at = at[word]
    at[name] = value
    return file


PLAIN_TOML = as_toml(DECODER)
HOLDS_NO_MODEL = "[model] is missing: the file has "


@pytest.mark.parametrize(
    ("text", "says"),
    [
        *(
            (text, "mine")
            for text in ("[model]\nvocab = 2001-01-01", "[model]\n[model]", "model = 1", "[[model]]\nx=1")
        ),
        ("config = {}", "mine"),
        (f"expect = 5\n{PLAIN_TOML}", "[expect] must be a table"),
        (f"expect = {{parameters = 5}}\n{PLAIN_TOML}", "[expect] of a custom model needs parameters"),
        (
            f'expect = {{parameters = "5", from = "arithmetic", working = "5"}}\n{PLAIN_TOML}',
            "[expect] parameters must be a whole number",
        ),
        (f'source = {{url = "x"}}\n{PLAIN_TOML}', "[source] of a custom model may only have about"),
        ("", f"{HOLDS_NO_MODEL}nothing"),
        ("# a plan\n", f"{HOLDS_NO_MODEL}nothing"),
        ("[modell]\nvocab = 5\n[decoder]\n", f"{HOLDS_NO_MODEL}[modell], [decoder]"),
    ],
)
def test_a_broken_file_is_refused(run, tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
    ran = run("flops", str(tmp_path / "mine.toml"))
    assert (ran.code, ran.out) == (2, "") and says in ran.err and "Traceback" not in ran.err


def test_what_a_custom_model_may_say_of_itself(run, tmp_path: Path) -> None:
    total = load(DECODER).params().total
    expect = f'expect = {{parameters = {total}, from = "arithmetic", working = "{total}"}}\n'
    (tmp_path / "mine.toml").write_text(f'{expect}source = {{about = "a test"}}\n{PLAIN_TOML}')
    assert "a test, described" in run("models", str(tmp_path / "mine.toml")).out
    assert f"{total:,} (equal)" in run("params", str(tmp_path / "mine.toml")).out
    with pytest.raises(TfacctError) as raised:
        load_model("mine", set_in(DECODER, "decoder.every", {"\n": {}}))
    assert "\n" not in raised.value.message and "\x1b" not in str(TfacctError("a\x1b[2J", "b\x1b[2J"))


CHUNKED = {**COMBINABLE, "mamba2": {**MAMBA2, "chunk": 8}, "delta_net": {**DELTA, "chunk": 8}}
FORMULAS: dict[str, dict[str, Any]] = {
    **{name: SHAPES[name] for name in ("custom", "custom, windowed", "custom, encoder post-norm")},
    "layers that differ": over(MIXED, decoder__every=None),  # its whole total would take long to read back
    "all mixers": hybrid(**CHUNKED),
}


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("of", ["flops", "params", "kv", "train"])
def test_the_formula_read_back_is_the_count(name: str, of: str) -> None:
    own = load_model("mine", FORMULAS[name])
    if own.has_cache or of != "kv":
        check_formula(own, of, Workload(own.context, own.context, source=31, new_source=31))


EXAMPLES = Path(__file__).parents[2] / "examples"
EXAMPLES_OF = {"gemma_like": "gemma-3-1b", "deepseek_like": "deepseek-v3", "qwen3_next_like": "qwen3-next-80b-a3b"}


@pytest.mark.parametrize(("name", "preset"), EXAMPLES_OF.items())
def test_the_examples_are_the_published_models(name: str, preset: str) -> None:
    file = EXAMPLES / f"{name}.toml"
    assert len(file.read_text(encoding="utf-8").splitlines()) <= 35
    own, published = load(file).loaded, load(preset).loaded
    alike(own.ledger, published.ledger, (4096, 4096), (4096, 1), (4096, 700))
    assert sum(own.ledger.parameters().values()) == published.expected


@pytest.mark.parametrize("name", EQUIVALENTS)
def test_a_model_of_parts_is_the_familys(name: str) -> None:
    steps = ((150, 150), (23, 23), (23, 13), (150, 70), (23, 1), (3, 3), (1, 1))
    alike(load_model("mine", EQUIVALENTS[name]).ledger, tiny(name).ledger, *steps)


def blocks(file: dict) -> list[str]:
    """What each layer has, in short."""
    words = []
    for block in load_model("mine", file).architecture.blocks():
        attention, network = block.attention, block.find(Experts) or block.find(FeedForward)
        mixer = {Attention: "a", LatentAttention: "l", type(None): "m"}[type(attention)]
        window = "" if block.window is None else str(block.window)
        words.append(f"{mixer}{window}{'-' if network is None else network.width}")
    return words


def test_the_order_in_which_tables_of_layers_override_each_other() -> None:
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


def test_keys_of_kinds_are_set_shown_and_swept_by_dotted_name(run, tmp_path: Path) -> None:
    file = saved(tmp_path, LOCAL)
    ran = run(
        "models", file, "--set", "decoder.local.attention.kv_heads=2", "--set", "decoder.first.1.feed_forward.width=5"
    )
    words = ran.out_line
    assert "decoder.local.attention.window given 4" in words, ran.out
    assert "decoder.local.attention.kv_heads set 2" in words and "attention.kv_heads defaulted 6" in words
    assert "decoder.first.1.feed_forward.width set 5" in words
    # 2 · 4 windowed layers · min(S, W) · 6 heads · 8 · 2 bytes, and 2 full ones of 32 keys
    swept = run("sweep", file, "--set", "decoder.local.attention.window=1,2", "--metric", "kv_cache_bytes", "--json")
    points = [point["kv_cache_bytes"] for point in swept.models[0]["lines"]]
    assert points == [2 * 6 * 8 * 2 * (4 * window + 2 * 32) for window in (1, 2)]
    for wrong in ("decoder.lokal.attention.window=3", "decoder.local.window=3"):
        ran = run("flops", file, "--set", wrong)
        assert ran.code == 2 and "no field" in ran.err, ran.err
    ran = run("flops", file, "--set", "decoder.every.x.attention.window=3")
    assert ran.code == 2 and "'x' is not a layer number" in ran.err


def test_none_removes_the_value_of_a_common_table() -> None:
    file = over(DECODER, attention__window=4, attention__qk_norm="rms", decoder__first={"1": {"attention": {}}})
    file["decoder"]["first"]["1"]["attention"] = {"window": "none", "qk_norm": "none", "head_dim": "none"}
    first, last = load_model("mine", file).architecture.blocks()
    assert (first.attention.window, first.attention.qk_norm, first.attention.head_dim) == (None, None, 8)
    assert last.attention.window == 4 and last.attention.qk_norm is not None
    with pytest.raises(TfacctError, match=r"decoder\.first\.1\.attention\.heads must be a whole number"):
        load(over(DECODER, decoder__first={"1": {"attention": {"heads": "none"}}}))


def test_words_for_layers_that_differ(run, tmp_path: Path) -> None:
    """Axes of latents and of grouped heads, and both in the header of the cache."""
    file = saved(tmp_path, over(MIXED, model__latent_attention=None))
    ran = run("formula", file, columns=200)
    assert "Natt = 6: query heads in " in ran.out and "Nlat = 5: query heads in " in ran.out, ran.out
    assert "--set model.latent_attention=FORM" in ran.out_line
    assert "as built (2 KV heads or latent)" in run("memory", "--kv", file, columns=120).out
    two = over(
        LOCAL, decoder__every={"2": {"experts": EXPERTS}}, decoder__first={"4": {"experts": {**EXPERTS, "active": 3}}}
    )
    saved(tmp_path, two)
    words = run("flops", file, "-v").out_line
    assert "In 4 of 6 layers, a token uses 3 of 8 experts. In 1 of 6 layers, a token uses 2 of 8" in words


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
    """The documentation lists no key that changes nothing."""

    def counts(own: dict) -> tuple:
        ledger = load_model("mine", hybrid(**{name: own})).ledger
        at = Workload(23, 23).axes()
        return ledger.parameters(), ledger.flops(at), ledger.pointwise(at), ledger.states(at)

    plain = counts(PLAIN[name])
    for key, value in CHANGED[name].items():
        assert counts({**PLAIN[name], key: value}) != plain, key
    keys = {*tables.PARTS[name].model_fields}
    assert {*CHANGED[name]} == keys - tables.REFERENCE_ONLY
    assert counts({**PLAIN[name], **({"activation": "relu"} if "activation" in keys else {})}) == plain


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
    file = saved(tmp_path, own)
    ran = run("formula", file)
    assert ran.code == 2 and "Pc is 8 in some parts and 16 in others" in ran.err
    ran = run("flops", file, "--ctx", "29", "--explain")
    words = ran.out_line
    assert "Nc1 = 4 chunks of new tokens, T / Pcmam rounded up" in words, ran.out
    assert "Nc2 = 2 chunks of new tokens, T / Pcdel rounded up" in words
    own["decoder"]["kind1"]["delta_net"]["chunk"] = 8
    saved(tmp_path, own)
    assert "Nc = 4: chunks of new tokens, T / Pc rounded up" in run("formula", file).out_line
