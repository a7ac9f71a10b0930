"""Saved tensors of experts by hand, and the effect of each trait of a class. Kind: golden."""

import pytest

from tests.families import TINY
from tests.helpers.class_bytes import ROWS, bytes_of_row, step_of_row
from tests.helpers.models import tiny
from tfacct import load
from tfacct.base.errors import UsageError
from tfacct.ledger.groups import Group
from tfacct.ledger.lines import Line, Matmul, Pointwise
from tfacct.ledger.storage import width
from tfacct.ledger.workload import Request
from tfacct.loading import selection
from tfacct.training import traits as table
from tfacct.training.memory import training_memory
from tfacct.training.recipe import Recipe
from tfacct.training.saved_tensors import LayerRules
from tfacct.training.step import Bytes
from tfacct.training.traits import TRAITS, Mode, Traits

AXES = {"B": 2, "T": 11, "D": 24, "E": 7, "A": 3, "Fe": 13}
TOKENS = 2 * 11


def saved(*lines: Line, traits: Traits = Traits()) -> int:  # noqa: B008
    """Bytes of the tensors that a layer of these lines saves in bf16."""
    rules = LayerRules(Group(tuple(lines), {}, numbers=range(1)), AXES, Mode(), traits)
    return int(Bytes(rules.axes, width("bf16")).of(rules.graph().saved))


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
    assert saved(*lines) == TOKENS * 3 * (2 * (24 + 4 * 13 + 24) + 4)
    narrow = saved(*lines, traits=Traits(narrow_shares=True))
    assert narrow == TOKENS * 3 * (2 * (24 + 4 * 13 + 24) + 2)
    dense = saved(*lines, traits=Traits(dense_experts=True))
    assert dense == TOKENS * 7 * 2 * (24 + 4 * 13 + 24)
    clamped = saved(*lines, traits=Traits(clamped_experts=True))
    assert clamped == TOKENS * 3 * (2 * (24 + 7 * 13 + 24) + 4)


def test_routing() -> None:
    """Scores of all seven experts in fp32, the three largest and their sum; which these are, the order of the tokens by
    experts, the way back and their rows, of eight bytes; four bytes for each expert."""
    lines = (
        Matmul("blocks.*.mlp.router", "B T D, D E -> B T E"),
        Pointwise("blocks.*.mlp.routing", "B T E", kind="routing"),
    )
    own = TOKENS * (7 * 4 + 3 * 4 + 4 + 4 * 3 * 8) + 7 * 4
    assert saved(*lines) == TOKENS * 24 * 2 + own
    # A copy in fp32 of what the router reads, and of its weight.
    assert saved(*lines, traits=Traits(fp32_router=True)) == TOKENS * 24 * 4 + 24 * 7 * 4 + own


def deviation(row: str) -> float:
    """The larger relative error of saved bytes and peak, compared with the class."""
    model, asked = step_of_row(ONE_OF_EACH, row)
    step, (saved_bytes, peak) = model.train(**asked), bytes_of_row(ONE_OF_EACH, row)
    assert saved_bytes is not None
    return max(abs(step.saved_bytes / saved_bytes - 1), abs(step.peak_bytes / peak - 1))


ONE_OF_EACH = "a-class-with-each-trait"
STEPS = {row: load(row.split()[0]).loaded for table_, row in ROWS if table_ == ONE_OF_EACH}


@pytest.mark.parametrize("trait", Traits._fields)
@pytest.mark.usefixtures("presets_apart")
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
@pytest.mark.usefixtures("presets_apart")
def test_operations_in_an_attention_module_matter(monkeypatch: pytest.MonkeyPatch, what: str, row: str) -> None:
    """They are recomputed with their module; after it, their saved tensors would stay."""
    inside = deviation(row)
    monkeypatch.setattr(type(STEPS[row].config), what, False)
    assert deviation(row) > inside + 0.00025


ATTENTION = {"attention_dropout", "attention_probs_dropout_prob", "attn_pdrop"}


def test_dropout_of_eager_attention_saves_a_mask_in_every_family() -> None:
    """torch's dropout saves a mask with a byte for each element: at least as many bytes as the softmax has elements."""
    asked = 0
    for family in TINY:
        model = tiny(family)
        if not (fields := ATTENTION & {field for field, _ in model.config.dropouts.values()}):
            continue
        work = Request(ctx=model.context if model.source else 40, batch=3)
        try:
            without, dropped = (
                training_memory(one, selection.runnable(one, work), Recipe(attention="eager")).saved_bytes
                for one in (model.with_fields(dict.fromkeys(fields, rate)) for rate in (0.0, 0.1))
            )
        except UsageError:
            continue
        at = selection.runnable(model, work).axes()
        softmax = [n for path, n in model.ledger.pointwise(at, unfolded=True).items() if path.endswith(".softmax")]
        assert dropped - without >= sum(softmax) > 0, family
        asked += 1
    assert asked > 100
