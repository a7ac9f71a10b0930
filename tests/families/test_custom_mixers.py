"""Custom models with Mamba-2, gated DeltaNet and short convolutions equal families with the same parts. Kind: law,
refusal.
"""

from pathlib import Path

import pytest

from tests.helpers.custom import (
    BESIDE,
    DECODER,
    DELTA,
    LATENTS,
    MAMBA2,
    PLAIN,
    alike,
    as_toml,
    check_refused,
    hybrid,
    over,
)
from tests.helpers.models import tiny
from tfacct.families import custom_tables as tables
from tfacct.ledger.workload import Request, Workload
from tfacct.loading.model import load_model

# The same model said by a family and by parts.
TWINS = {
    "qwen3_next": {
        "model": {"vocab": 107, "hidden": 44, "context": 53, "positions": "rotary"},
        "attention": {"heads": 6, "kv_heads": 2, "head_dim": 32, "rotary_dim": 8, "qk_norm": "rms", "gate": True},
        "experts": {"experts": 7, "active": 4, "width": 37, "shared": 29, "shared_gate": True},
        "norm": {"kind": "rms"},
        "decoder": {
            "layers": 4,
            "pattern": ["linear", "dense", "full", "linear"],
            "linear": {"delta_net": DELTA},
            "dense": {"delta_net": DELTA, "feed_forward": {"width": 71, "gated": True}},
        },
    },
    "bamba": {
        "model": {"vocab": 211, "hidden": 48, "context": 103, "positions": "rotary"},
        "attention": {"heads": 6, "kv_heads": 2, "head_dim": 20, "rotary_dim": 10, "bias": True},
        "feed_forward": {"width": 71, "gated": True, "bias": True},
        "norm": {"kind": "rms"},
        "decoder": {"layers": 3, "mamba2": {**MAMBA2, "layers": [0, 2]}},
    },
    "lfm2": {
        "model": {"vocab": 211, "hidden": 48, "context": 103, "positions": "rotary", "tied": True},
        "attention": {"heads": 6, "kv_heads": 2, "head_dim": 20, "qk_norm": "rms"},
        "feed_forward": {"width": 78, "gated": True},  # 2 · 97 / 3, times 1.1, up to a multiple of 13
        "norm": {"kind": "rms"},
        "decoder": {"layers": 4, "short_convolution": {"kernel": 5, "bias": True, "layers": [0, 2, 3]}},
    },
    "kimi_linear": {
        "model": {"vocab": 149, "hidden": 48, "context": 67, "positions": "none", "latent_attention": "expanded"},
        "latent_attention": {"heads": 6, "kv_rank": 14, "nope_dim": 8, "rope_dim": 4, "value_dim": 10},
        "experts": {"experts": 15, "active": 7, "width": 37, "shared": 74},
        "norm": {"kind": "rms"},
        "decoder": {
            "layers": 4,
            "pattern": ["kda", "full", "kda", "kda"],
            "kda": {"delta_net": {"heads": 3, "key_dim": 12, "decay_rank": 12, "kernel": 5}},
            "first": {"1": {"feed_forward": {"width": 71, "gated": True}}},
        },
    },
}


@pytest.mark.parametrize("name", TWINS)
def test_mixers_of_parts_are_the_familys(name: str) -> None:
    steps = ((150, 150), (23, 23), (23, 13), (150, 70), (23, 1), (3, 3), (1, 1))
    alike(load_model("mine", TWINS[name]).ledger, tiny(name).ledger, *steps)


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


def test_two_lists_share_the_layers() -> None:
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


REFUSED = [
    (
        hybrid(delta_net={"heads": 6, "key_heads": 4, "key_dim": 8}),
        "delta_net.key_heads=4 must divide delta_net.heads=6",
    ),
    (
        hybrid(mamba2={"heads": 6, "groups": 4, "head_dim": 8}),
        "[decoder.kind0]: mamba2.groups=4 must divide mamba2.heads=6",
    ),
    (hybrid(delta_net={"heads": 6}), "required field 'decoder.kind0.delta_net.key_dim' is missing"),
    (hybrid(mamba2={"heads": 6}), "required field 'decoder.kind0.mamba2.head_dim' is missing"),
    (hybrid(short_convolution={"kernel": 0}), "decoder.kind0.short_convolution.kernel must be at least 1, not 0"),
    (hybrid(delta_net={"heads": 6, "keydim": 8}), "[decoder.kind0.delta_net] has no 'keydim'", "did you mean key_dim"),
    (hybrid(deltanet={"heads": 6}), "[decoder.kind0] has no 'deltanet'", "did you mean delta_net"),
    (hybrid(delta_net={**PLAIN["delta_net"], "mlp": True}), "has no 'mlp'", "known keys: activation, chunk"),
    (hybrid(short_convolution={"layers": [0]}), "[decoder.kind0.short_convolution] has no 'layers'"),
    (over(DECODER, delta_net={"heads": 6}), "unknown table [delta_net]"),
    (over(DECODER, decoder__delta_net=PLAIN["delta_net"]), "required field 'decoder.delta_net.layers' is missing"),
    (over(DECODER, decoder__delta_net={**DELTA, "layers": [2]}), "decoder.delta_net.layers has layer 2: the last of 2"),
    (over(DECODER, decoder__delta_net={**DELTA, "layers": [1, 1]}), "decoder.delta_net.layers lists a layer twice"),
    (
        over(DECODER, decoder__delta_net={**DELTA, "layers": [1]}, decoder__short_convolution={"layers": [1]}),
        "decoder.delta_net.layers and decoder.short_convolution.layers both list layer 1",
    ),
    (
        over(DECODER, attention=None, decoder__mamba2={**MAMBA2, "layers": [0, 1]}),
        "decoder.mamba2.layers leaves no layer with attention",
        "for a model of Mamba-2 only, use a config.json of its family",
    ),
    (
        over(DECODER, attention=None, decoder__every={"1": {"short_convolution": {}}}),
        "no layer has attention",
        "give some of its layers attention",
    ),
    (over(hybrid(delta_net=DELTA), norm__shared=True), "[decoder.delta_net] with norm.shared is not supported"),
    (over(hybrid(mamba2=MAMBA2), norm__order="parallel"), '[decoder.mamba2] with norm.order = "parallel"'),
    (over(hybrid(delta_net=DELTA), encoder={"layers": 1}), "[decoder.delta_net] with an [encoder] is not supported"),
    (over(DECODER, encoder={"layers": 1, "delta_net": DELTA}), "[encoder] has no 'delta_net'"),
    (
        hybrid(mamba=PLAIN["mamba"], mamba2=MAMBA2),
        "[mamba] and [mamba2] in one model are not supported, because their states share a name",
    ),
    (over(DECODER, attention__rotary_dim=3), "attention.rotary_dim 3 must be even"),
    (over(DECODER, attention__rotary_dim=10), "attention.rotary_dim 10 exceeds the head size, 8"),
    (over(DECODER, attention__rotary_dim=4, attention__rotated=False), "attention.rotary_dim with attention.rotated"),
    (
        over(DECODER, attention__rotary_dim=4, model__positions="none"),
        'attention.rotary_dim with model.positions = "none" has no effect',
    ),
    (
        over(
            hybrid(mamba2={**MAMBA2, "mlp": False}),
            decoder__every={"1": {"experts": {"experts": 4, "active": 2, "width": 8}}},
        ),
        "has no effect: layers of Mamba-2 have no MLP",
    ),
]


@pytest.mark.parametrize(("file", "says"), [(f, s) for f, *s in REFUSED], ids=[s[0][:60] for _, *s in REFUSED])
def test_refusals(run, tmp_path: Path, file: dict, says: list[str]) -> None:
    check_refused(run, tmp_path / "mine.toml", file, says)


def test_a_head_that_is_rotated_whole_has_one_size() -> None:
    whole = load_model("mine", over(DECODER, attention__rotary_dim=8)).architecture
    assert whole == load_model("mine", DECODER).architecture
    odd = load_model("mine", over(DECODER, attention__rotary_dim=4, attention__head_dim=9)).architecture
    assert odd.blocks()[0].attention.axes()["Hr"] == 4


def test_latent_attention_without_positions_may_share_an_odd_part() -> None:
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
    sympy = pytest.importorskip("sympy")
    from tfacct.reports.formula import formula

    chunked = {"chunk": 8}
    own = load_model("mine", hybrid(**{**BESIDE, "mamba2": {**MAMBA2, **chunked}, "delta_net": {**DELTA, **chunked}}))
    facts = formula(own, Request(), of=of).models[0]
    axis_names = {axis: sympy.Symbol(axis) for axis in facts["legend"]}
    values = {axis_names[axis]: about["value"] for axis, about in facts["legend"].items() if "value" in about}
    at = Workload(32, 32).axes()
    count = {"flops": own.ledger.flops, "params": lambda _: own.ledger.parameters(), "kv": own.ledger.states}[of](at)
    assert sympy.sympify(facts["total_formula"], locals=axis_names).subs(values) == sum(count.values())
