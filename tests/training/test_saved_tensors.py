"""The rule of each kind of line by hand, and the effect of each trait of a class. Kind: golden."""

from dataclasses import replace

import pytest

from tests.helpers.class_bytes import ROWS, bytes_of_row, step_of_row
from tfacct import load
from tfacct.ledger.groups import Group
from tfacct.ledger.lines import Line, Matmul, Pointwise
from tfacct.ledger.storage import width
from tfacct.training import traits as table
from tfacct.training.saved_tensors import LayerRules
from tfacct.training.step import Bytes
from tfacct.training.traits import TRAITS, Mode, Traits

AXES = {"B": 2, "T": 11, "S": 11, "D": 24, "N": 6, "K": 2, "G": 3, "H": 5, "F": 35, "E": 7, "A": 3, "Fe": 13, "Hr": 4}
TOKENS = 2 * 11
HEADS = (
    Matmul("blocks.*.attn.q_proj", "B T D, D N H -> B T N H"),
    Matmul("blocks.*.attn.k_proj", "B T D, D K H -> B T K H"),
    Matmul("blocks.*.attn.v_proj", "B T D, D K H -> B T K H"),
    Pointwise("blocks.*.attn.q_rotary", "B T N H", kind="rotary"),
    Pointwise("blocks.*.attn.k_rotary", "B T K H", kind="rotary"),
    Matmul("blocks.*.attn.scores", "B T K G H, B S K H -> B K G T S", mask="causal"),
    Pointwise("blocks.*.attn.softmax", "B K G T S", kind="softmax"),
    Matmul("blocks.*.attn.values", "B K G T S, B S K H -> B T K G H", mask="causal"),
    Matmul("blocks.*.attn.o_proj", "B T N H, N H D -> B T D"),
)


def rules(*lines: Line, mode: Mode = Mode(), traits: Traits = Traits()) -> LayerRules:  # noqa: B008
    """Rules of the lines of a layer."""
    return LayerRules(Group(tuple(lines), {}, numbers=range(1)), AXES, mode, traits)


def saved(*lines: Line, dtype: str = "bf16", mode: Mode = Mode(), traits: Traits = Traits()) -> dict[str, int]:  # noqa: B008
    """Bytes of each saved tensor."""
    found = rules(*lines, mode=mode, traits=traits)
    of = Bytes(found.axes, width(dtype)).of
    return {each.path.removeprefix("blocks.*."): int(of([each])) for each in found.graph().saved}


def test_a_tensor_that_two_matmuls_read_is_saved_once() -> None:
    gate = Matmul("blocks.*.mlp.gate_proj", "B T D, D F -> B T F")
    up = Matmul("blocks.*.mlp.up_proj", "B T D, D F -> B T F")
    assert saved(gate, up) == {"in": TOKENS * 24 * 2}


def test_autocast_saves_a_cast_of_each_weight_and_of_what_each_matmul_reads() -> None:
    """The residual stream is in fp32. Casts are of two bytes a number."""
    gate = Matmul("blocks.*.mlp.gate_proj", "B T D, D F -> B T F")
    up = Matmul("blocks.*.mlp.up_proj", "B T D, D F -> B T F")
    found = saved(gate, up, mode=Mode(autocast=True))
    each = {"weight_cast": 24 * 35 * 2, "in": TOKENS * 24 * 2}
    assert found == {f"mlp.{which}_proj.{name}": size for which in ("gate", "up") for name, size in each.items()}


@pytest.mark.parametrize(
    ("mode", "dtype", "traits", "expected"),
    [
        # A copy in fp32, a number of each row, what the weight scales.
        (Mode(), "bf16", Traits(), TOKENS * (24 * 4 + 4 + 24 * 2)),
        # In fp32 the input is its own copy: it is saved as it is.
        (Mode(fp32=True), "fp32", Traits(), TOKENS * (24 * 4 + 4 + 24 * 4)),
        (Mode(), "bf16", Traits(fp32_norm_weights="parameters"), TOKENS * (24 * 4 + 4 + 24 * 4)),
        (Mode(), "bf16", Traits(fp32_norm_weights="copies"), TOKENS * (24 * 4 + 4 + 24 * 4) + 24 * 4),
        (Mode(), "bf16", Traits(norm_reads_twice=True), TOKENS * (24 * 2 + 24 * 4 + 4 + 24 * 2)),
    ],
)
def test_an_rmsnorm(mode: Mode, dtype: str, traits: Traits, expected: int) -> None:
    norm = Pointwise("blocks.*.attn_norm", "B T D", weight="D", kind="norm_rms")
    assert sum(saved(norm, dtype=dtype, mode=mode, traits=traits).values()) == expected


def test_an_rmsnorm_over_all_heads_has_one_number_for_each_token() -> None:
    """Of six heads of five: one number of four bytes, or one for each head if each head has its own norm."""
    each = Pointwise("blocks.*.attn.q_norm", "B T N H", weight="H", kind="norm_rms")
    together = Pointwise("blocks.*.attn.q_norm", "B T N H", weight="N H", kind="norm_rms")
    q = HEADS[0]
    assert saved(q, each)["attn.q_norm.rms"] == 6 * saved(q, together)["attn.q_norm.rms"] == TOKENS * 6 * 4


def test_a_layernorm_saves_its_input_and_two_numbers_of_each_row() -> None:
    norm = Pointwise("blocks.*.attn_norm", "B T D", weight="D", bias="D", kind="norm_layer")
    assert sum(saved(norm).values()) == TOKENS * (24 * 2 + 2 * 4)
    # In Python, without a bias: the input in fp32, less its mean, twice, a number of each row, what is scaled in fp32.
    python = Pointwise("blocks.*.attn_norm", "B T D", weight="D", kind="norm_layer")
    assert sum(saved(python, traits=Traits(python_layer_norm=True)).values()) == TOKENS * (3 * 24 * 4 + 4)
    # Without a weight it runs in fp32.
    assert sum(saved(Pointwise("blocks.*.attn_norm", "B T D", kind="norm_layer")).values()) == TOKENS * (24 * 4 + 8)


def mlp(function: str, *, gated: bool) -> tuple[Line, ...]:
    gate = (Matmul("blocks.*.mlp.gate_proj", "B T D, D F -> B T F"),) if gated else ()
    act = Pointwise("blocks.*.mlp.act", "B T F", kind="activation", function=function)
    down = Matmul("blocks.*.mlp.down_proj", "B T F, F D -> B T D")
    return (*gate, Matmul("blocks.*.mlp.up_proj", "B T D, D F -> B T F"), act, down)


@pytest.mark.parametrize(
    ("function", "gated", "tensors"),
    [
        ("silu", True, 4),  # gate, up, the activated gate, and the product that down_proj reads
        ("gelu", False, 2),  # its input, and its result
        ("gelu_new", False, 5),  # written in Python: four, and its result
        ("relu", False, 1),  # its result alone
    ],
)
def test_an_activation(function: str, gated: bool, tensors: int) -> None:
    assert sum(saved(*mlp(function, gated=gated)).values()) == TOKENS * (24 * 2 + tensors * 35 * 2)


def test_attention_inside_sdpa() -> None:
    """Queries, keys, values and the result, a logarithm in fp32 for each head and token, 24 bytes of the kernel; what
    q, k and v read."""
    heads = TOKENS * 2 * (30 + 10 + 10 + 30)
    assert sum(saved(*HEADS).values()) == TOKENS * 24 * 2 + heads + TOKENS * 6 * 4 + 24
    # A mask of each sequence, and keys and values of all six heads; another kernel, with 16 bytes. It pads the 11 keys
    # of a mask's row to 16, and the 11 logarithms of a head to 32.
    masked = TOKENS * 2 * (4 * 30) + 2 * 11 * 16 * 2
    always = saved(*HEADS, traits=Traits(always_masked=True))
    assert sum(always.values()) == TOKENS * 24 * 2 + masked + 2 * 32 * 6 * 4 + 16
    # Where parts of heads are concatenated, o_proj reads a copy of the result.
    rejoined = saved(*HEADS, traits=Traits(rejoins_heads=True))
    assert sum(rejoined.values()) - sum(saved(*HEADS).values()) == TOKENS * 30 * 2
    # Queries and keys as one matmul made them stay with the values, which are a view of it.
    fused = saved(*HEADS, traits=Traits(fused_qkv="views"))
    assert sum(fused.values()) - sum(saved(*HEADS).values()) == TOKENS * 2 * (30 + 10)


def test_eager_attention() -> None:
    """The softmax in fp32 and its cast, keys and values of all six heads, queries and the result."""
    eager, pairs = Mode(sdpa=False), 2 * 6 * 11 * 11
    rows = TOKENS * 24 * 2 + TOKENS * 2 * (4 * 30)
    assert sum(saved(*HEADS, mode=eager).values()) == rows + pairs * (4 + 2)
    assert sum(saved(*HEADS, mode=eager, traits=Traits(narrow_softmax=True)).values()) == rows + pairs * 2
    # With dropout: a mask, and what is left, in place of the cast.
    dropped = eager._replace(dropouts=frozenset(("attention",)))
    assert sum(saved(*HEADS, mode=dropped).values()) == rows + pairs * (4 + 1 + 2)
    # Queries, and keys of all heads, in fp32.
    found = saved(*HEADS, mode=eager, traits=Traits(fp32_scores=True))
    assert sum(found.values()) == rows + pairs * (4 + 2) + TOKENS * 2 * (30 + 30)


def test_cos_and_sin_of_a_layer_of_their_own() -> None:
    found = saved(*HEADS, traits=Traits(rotary_per_layer=True, fp32_rotary=True))
    assert sum(found.values()) - sum(saved(*HEADS).values()) == 2 * 11 * 5 * 4


def test_experts() -> None:
    """Three of seven for each token: their inputs, gate, up, act(gate), act(gate) · up, and each result, which a
    routing weight of four bytes scales."""
    sent = "B T A D, D Fe -> B T A Fe"
    lines = (
        Matmul("blocks.*.mlp.experts.gate_proj", sent, expert_axis="E"),
        Matmul("blocks.*.mlp.experts.up_proj", sent, expert_axis="E"),
        Pointwise("blocks.*.mlp.experts.act", "B T A Fe", kind="activation", function="silu"),
        Matmul("blocks.*.mlp.experts.down_proj", "B T A Fe, Fe D -> B T A D", expert_axis="E"),
        Pointwise("blocks.*.mlp.weighting", "B T A D", kind="weighting"),
    )
    assert sum(saved(*lines).values()) == TOKENS * 3 * (2 * (24 + 4 * 13 + 24) + 4)
    narrow = saved(*lines, traits=Traits(narrow_shares=True))
    assert sum(narrow.values()) == TOKENS * 3 * (2 * (24 + 4 * 13 + 24) + 2)
    dense = saved(*lines, traits=Traits(dense_experts=True))
    assert sum(dense.values()) == TOKENS * 7 * 2 * (24 + 4 * 13 + 24)
    clamped = saved(*lines, traits=Traits(clamped_experts=True))
    assert sum(clamped.values()) == TOKENS * 3 * (2 * (24 + 7 * 13 + 24) + 4)


def test_routing() -> None:
    """Scores of all seven experts in fp32, the three largest and their sum; which these are, the order of the tokens by
    experts, the way back and their rows, of eight bytes; four bytes for each expert."""
    lines = (
        Matmul("blocks.*.mlp.router", "B T D, D E -> B T E"),
        Pointwise("blocks.*.mlp.routing", "B T E", kind="routing"),
    )
    own = TOKENS * (7 * 4 + 3 * 4 + 4 + 4 * 3 * 8) + 7 * 4
    assert sum(saved(*lines).values()) == TOKENS * 24 * 2 + own
    # A copy in fp32 of what the router reads, and of its weight.
    assert sum(saved(*lines, traits=Traits(fp32_router=True)).values()) == TOKENS * 24 * 4 + 24 * 7 * 4 + own


def test_a_residual_sum_saves_the_mask_of_its_dropout_alone() -> None:
    add = Pointwise("blocks.*.attn_add", "B T D", kind="residual")
    assert saved(add) == {}
    assert saved(replace(add, dropout="after")) == {"attn.drop": TOKENS * 24}


def deviation(row: str) -> float:
    """The larger relative error of saved bytes and peak, compared with the class."""
    model, asked = step_of_row(ONE_OF_EACH, row)
    step, (saved_bytes, peak) = model.train(**asked), bytes_of_row(ONE_OF_EACH, row)
    assert saved_bytes is not None
    return max(abs(step.saved_bytes / saved_bytes - 1), abs(step.peak_bytes / peak - 1))


ONE_OF_EACH = "a-class-with-each-trait"
STEPS = {row: load(row.split()[0]).loaded for table_, row in ROWS if table_ == ONE_OF_EACH}


@pytest.mark.parametrize("trait", Traits._fields)
def test_every_trait_matters(monkeypatch: pytest.MonkeyPatch, trait: str) -> None:
    """Without it the rules are further from a class."""
    plain = getattr(Traits(), trait)
    with_trait = {row: deviation(row) for row, ours in STEPS.items() if getattr(TRAITS[ours.family], trait) != plain}
    without = {family: traits._replace(**{trait: plain}) for family, traits in TRAITS.items()}
    monkeypatch.setattr(table, "TRAITS", without)
    assert any(deviation(row) > before for row, before in with_trait.items())


@pytest.mark.parametrize(
    ("what", "row"),
    [
        ("drops_in_attention", "gpt2 ctx=1024 recompute=attention"),
        ("norm_in_attention", "camembert-base ctx=512 recompute=attention"),
    ],
)
def test_operations_in_an_attention_module_matter(monkeypatch: pytest.MonkeyPatch, what: str, row: str) -> None:
    """They are recomputed with their module; after it, their saved tensors would stay."""
    inside = deviation(row)
    monkeypatch.setattr(type(STEPS[row].config), what, False)
    assert deviation(row) > inside + 0.00025


def test_a_gate_with_a_number_for_each_head() -> None:
    """A sigmoid of six numbers a token, times the result of attention, which is saved for it, too."""
    gates = (
        Matmul("blocks.*.attn.gate_proj", "B T D, D N -> B T N"),
        Pointwise("blocks.*.attn.gate", "B T N H", kind="gate", function="sigmoid"),
    )
    assert saved(*HEADS[:-1], *gates)["attn.gate.in"] == TOKENS * 6 * 2
    whole = (Matmul("blocks.*.attn.gate_proj", "B T D, D N H -> B T N H"), gates[1])
    assert saved(*HEADS[:-1], *whole)["attn.gate.in"] == TOKENS * 30 * 2
