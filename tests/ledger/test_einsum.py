"""The grammar of einsum specs, and the counts that follow from their axes. Kind: golden, refusal."""

import pytest

from tests.families import SHAPES
from tests.helpers.models import tiny
from tfacct import load
from tfacct.architecture.blocks import Block, Stack
from tfacct.architecture.parts import Attention, Embedding, FeedForward, Head, Norm, Part, Rotary
from tfacct.architecture.transformer import Transformer
from tfacct.ledger.einsum import SpecError, chunks, divided, one_by_one, packed_bytes, rounded_up
from tfacct.ledger.groups import Group, Ledger
from tfacct.ledger.lines import Matmul, Pointwise, State, Table
from tfacct.ledger.storage import storage, width
from tfacct.ledger.workload import Workload

SIZES = {"B": 2, "T": 3, "S": 5, "D": 7, "K": 11, "G": 13, "H": 17, "N": 11 * 13, "F": 19}


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("B T D, D F", "is not `left, right -> out`"),
        ("B T D -> B T D", "is not `left, right -> out`"),
        ("B T D, D F -> B T F -> B", "is not `left, right -> out`"),
        ("B T D, D d -> B T d", "'d' is not an axis"),
        ("B T T, T F -> B T F", "twice in one operand"),
        ("B T D, D F -> B T", "axis F is in one operand only"),
        ("B T D, D F -> B T F X", "axis X is in one operand only"),
        ("B T, B T -> B T", "no axis is contracted"),
    ],
)
def test_the_grammar_refuses_nonsense(spec: str, complaint: str) -> None:
    with pytest.raises(SpecError, match=complaint):
        Matmul("x", spec)


def test_a_mask_needs_pairs() -> None:
    with pytest.raises(SpecError, match="no query–key pairs"):
        Matmul("x", "B T D, D F -> B T F", mask="causal")


def test_parameters_of_pointwise_work_fit_its_result() -> None:
    with pytest.raises(SpecError, match="do not fit"):
        Pointwise("x", "B T D", weight="F")


def test_a_projection() -> None:
    line = Matmul("q_proj", "B T D, D K H -> B T K H", bias=True)
    # 2 FLOPs for each of B·T·D·K·H multiply-adds
    assert line.flops(SIZES) == 2 * 2 * 3 * 7 * 11 * 17
    dims = line.dims(SIZES)
    assert (dims.m, dims.k, dims.n, dims.times) == (2 * 3, 7, 11 * 17, 1)
    axes = {p.path: p.axes for p in line.parameters()}
    assert axes == {"q_proj.weight": ("D", "K", "H"), "q_proj.bias": ("K", "H")}
    assert line.operands(SIZES) == (2 * 3 * 7, 7 * 11 * 17, 2 * 3 * 11 * 17)


def test_a_product_of_activations() -> None:
    line = Matmul("scores", "B T K G H, B S K H -> B K G T S", mask="causal")
    assert line.parameters() == ()
    dims = line.dims(SIZES)
    assert (dims.m, dims.k, dims.n, dims.times) == (3, 17, 5, 2 * 11 * 13)
    assert line.flops(SIZES) == 2 * dims.m * dims.k * dims.n * dims.times
    # the last 3 of 5 tokens see 3 + 4 + 5 keys
    assert line.flops(SIZES, masked=True) == 2 * (3 + 4 + 5) * 17 * 2 * 11 * 13


def test_the_backward_pass_permutes_the_operands() -> None:
    left, right = Matmul("down", "B T F, F D -> B T D").backward()
    assert left.spec == "B T D, F D -> B T F"
    assert right.spec == "B T F, B T D -> F D"


def test_a_tied_head_is_one_tensor() -> None:
    tied, untied = tiny("qwen2"), tiny("qwen2", tie_word_embeddings=False)
    table = 73 * 40
    count = sum(tied.ledger.parameters().values())
    assert sum(untied.ledger.parameters().values()) == count + table
    assert "lm_head.weight" not in tied.ledger.parameters()


def test_a_weight_of_two_shapes_is_refused() -> None:
    lines = (Table("embed", "V D"), Matmul("lm_head", "B O D, D F -> B O F", weight="embed"))
    ledger = Ledger((Group(lines, {"V": 5, "D": 3, "F": 7}),))
    with pytest.raises(SpecError, match="has two shapes"):
        ledger.parameters()


def test_odd_elements_of_four_bits_round_up() -> None:
    assert packed_bytes(7, 4) == 4
    assert packed_bytes(8, 4) == 4
    assert packed_bytes(7, 8) == 7


def shaped(D, K, G, H, F, V, L) -> Transformer:
    """A Llama of any kind of number."""
    norm = Norm(hidden=D, kind="rms")
    block = Block.of(
        Attention(hidden=D, kv_heads=K, group=G, head_dim=H, rotary=Rotary(10_000.0)),
        FeedForward(hidden=D, width=F, gated=True),
        norm=norm,
    )
    return Transformer(Embedding(vocab=V, hidden=D), (Stack(block, L),), norm, Head(hidden=D, vocab=V))


def test_a_quotient_of_symbols_is_not_rounded() -> None:
    """sympy's `//` would be a floor, which no formula shows."""
    sympy = pytest.importorskip("sympy")
    tokens = sympy.Symbol("T", positive=True, integer=True)
    assert divided(tokens, 3) == divided(5 * tokens, 15) == tokens / 3 == rounded_up(tokens, 3)
    assert (divided(12, 3), rounded_up(13, 3)) == (4, 5)


def test_ints_arrays_and_symbols_agree() -> None:
    numpy, sympy = pytest.importorskip("numpy"), pytest.importorskip("sympy")
    names = "B T S D K G H F V L".split()
    symbols = dict(zip(names, sympy.symbols(" ".join(names), positive=True, integer=True), strict=True))
    points = [
        (1, 4, 9, 5, 2, 3, 7, 11, 13, 17),
        (2, 8, 16, 10, 4, 1, 3, 20, 50, 6),
        (7, 1, 2**20, 16384, 8, 16, 128, 53248, 128256, 126),
    ]

    def counts(values: dict) -> list:
        shape = shaped(*(values[name] for name in "D K G H F V L".split()))
        at = Workload(context=values["S"], tokens=values["T"], batch=values["B"]).axes()
        ledger = shape.ledger()
        return [
            sum(ledger.flops(at).values()),
            sum(ledger.flops(at, masked=True).values()),
            sum(ledger.parameters().values()),
            sum(ledger.states(at).values()),
            sum(ledger.pointwise(at).values()),
        ]

    formulas = counts(symbols)
    arrays = counts(
        {name: numpy.array(column, dtype=object) for name, column in zip(names, zip(*points, strict=True), strict=True)}
    )
    for index, point in enumerate(points):
        exact = counts(dict(zip(names, point, strict=True)))
        assert all(isinstance(count, int) for count in exact)
        assert [array[index] for array in arrays] == exact
        at = {symbols[name]: value for name, value in zip(names, point, strict=True)}
        assert [formula.subs(at) for formula in formulas] == exact


def test_every_axis_of_a_legend_is_used() -> None:
    """A legend may explain axes that a model lacks, but none that all models of the part and its subclasses lack."""
    explained, bound = {}, {}
    for name in SHAPES:
        for part in (each for one in tiny(name).architecture.parts() for each in one.with_nested()):
            of = [base for base in type(part).__mro__ if "legend" in vars(base) and base is not Part][-1:]
            of = of[0] if of else type(part)
            explained.setdefault(of, set()).update(part.legend)
            bound.setdefault(of, set()).update((*part.sizes().values(), *part.derived()))
    assert explained == bound


def test_elements_of_a_state() -> None:
    assert State("k", "B S K H").elements(SIZES) == 2 * 5 * 11 * 17


def test_every_blocks_tensor_takes_packed_bytes_of_its_own() -> None:
    """Three layers of 5 · 5 and 5 · 3 numbers at 4 bits: 13 and 8 bytes each, not 38 and 23 for all together."""
    lines = (Matmul("blocks.*.attn.q_proj", "B T D, D N H -> B T N H"), State("blocks.*.attn.k_cache", "B S K H"))
    group = Group(lines, {"D": 5, "N": 1, "K": 1, "H": 5}, numbers=(0, 1, 2), count=3)
    ledger = Ledger((group,))
    assert ledger.weight_bytes(storage("int4")) == {"blocks.*.attn.q_proj.weight": 3 * 13}
    assert ledger.state_bytes({"B": 1, "T": 3, "S": 3}, width("int4")) == {"blocks.*.attn.k_cache": 3 * 8}


def test_a_models_odd_tensors_are_rounded_block_by_block() -> None:
    """GPT-2 with a hidden size of 5, one head, three layers: keys and values of 3 tokens are 15 numbers, 8 bytes."""
    config = {"model_type": "gpt2", "vocab_size": 7, "n_embd": 5, "n_layer": 3, "n_head": 1, "n_positions": 9}
    assert load(config).kv(ctx=3, dtype="int4").total == 3 * 2 * 8


def test_a_recurrence_in_chunks_binds_how_many_there_are() -> None:
    """Chunks of 4 tokens: 9 new tokens are 3 chunks, padded; the token of a decode step is in none, unless it is the
    first."""
    scores = Matmul("delta.scores", "B Nc Pc H, B Nc Qc H -> B Nc Pc Qc")
    group = Group((scores,), {"Pc": 4, "Qc": 4, "H": 5}, count=2, numbers=range(2))
    for tokens, context, many, alone in ((9, 9, 3, 0), (8, 20, 2, 0), (1, 20, 0, 1), (1, 1, 1, 0)):
        at = {"B": 3, "T": tokens, "S": context}
        bound = group.bound(at)
        assert (bound["Nc"], bound["Tr"]) == (many, alone)
        assert Ledger((group,)).flops(at) == {"delta.scores": 2 * 2 * 3 * many * 4 * 4 * 5}
    assert group.bound({"B": 1, "T": 9, "S": 9, "Nc": 7})["Nc"] == 7


def test_chunks_of_arrays_are_counted_point_by_point() -> None:
    numpy = pytest.importorskip("numpy")
    tokens, context = numpy.array([1, 1, 64, 65, 200]), numpy.array([1, 7, 64, 65, 900])
    assert chunks(tokens, context, 64).tolist() == [1, 0, 1, 2, 4]
    assert one_by_one(tokens, context).tolist() == [0, 1, 0, 0, 0]


def test_a_state_may_have_a_width_of_its_own() -> None:
    """7 · 3 elements of 4 bytes in a cache of 2: 84 bytes; without a width of its own 42."""
    at = {"B": 7, "T": 1, "S": 9}
    for bits, expected in ((32, 84), (None, 42)):
        group = Group((State("blocks.*.delta.state", "B H", bits),), {"H": 3})
        assert Ledger((group,)).state_bytes(at, width("bf16")) == {"blocks.*.delta.state": expected}
