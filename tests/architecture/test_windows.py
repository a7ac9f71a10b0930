"""Windows, experts and latents by brute force over masks, steps and routing. Kind: golden."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.families import SHAPES
from tests.helpers.models import by_kind, tiny
from tfacct import load
from tfacct.architecture.parts import Attention, Experts, LatentAttention, Rotary
from tfacct.families.deepseek_v4 import CompressedAttention
from tfacct.families.rare.diffllama import DifferentialAttention
from tfacct.ledger.einsum import pairs, seen
from tfacct.ledger.groups import CACHED_KEYS, VISIBLE_KEYS
from tfacct.ledger.lines import Matmul
from tfacct.ledger.workload import Workload

STEPS = {
    "prefill": Workload(context=23, tokens=23, batch=3),
    "prefill within the window": Workload(context=4, tokens=4, batch=3),
    "prefill of a window": Workload(context=5, tokens=5, batch=3),
    "chunk": Workload(context=23, tokens=13, batch=3),
    "chunk that leaves the window": Workload(context=7, tokens=4, batch=3),
    "decode": Workload(context=23, tokens=1, batch=3),
    "decode at the window": Workload(context=6, tokens=1, batch=3),
    "first token": Workload(context=1, tokens=1, batch=3),
}
STEP = pytest.mark.parametrize("work", STEPS.values(), ids=STEPS)
WINDOWED = [name for name in SHAPES if any(b.window for b in tiny(name).architecture.blocks()) and tiny(name).has_cache]


def mask(queries: int, keys: int, window: int | None, *, around: bool = False) -> list[list[bool]]:
    """Which of all keys each new token sees, a row per token: the last `window` up to itself, or, with `around`, those
    in the `window` around it."""
    old = keys - queries
    if around:
        half = keys if window is None else (window - 1) // 2
        return [[abs(key - old - query) <= half for key in range(keys)] for query in range(queries)]
    return [
        [key <= old + query and (window is None or key > old + query - window) for key in range(keys)]
        for query in range(queries)
    ]


def in_chunks(queries: int, keys: int, size: int) -> list[list[bool]]:
    """Which of all keys each new token sees, a row per token: those up to itself in its chunk of `size` positions."""
    old = keys - queries
    return [[key <= old + q and key // size == (old + q) // size for key in range(keys)] for q in range(queries)]


def test_chunks_by_hand() -> None:
    """Of five positions in chunks of three, the last three see three, one and two."""
    assert [sum(row) for row in in_chunks(3, 5, 3)] == [3, 1, 2]


def test_the_mask_itself_by_hand() -> None:
    assert mask(2, 4, 2) == [[False, True, True, False], [False, False, True, True]]
    assert mask(2, 3, None) == [[True, True, False], [True, True, True]]


@pytest.mark.parametrize("window", [None, 1, 2, 3, 5, 9, 10, 11, 40])
def test_pairs_and_keys_seen_equal_a_count_over_the_mask(window: int | None) -> None:
    for keys in range(1, 13):
        for queries in range(1, keys + 1):
            rows = mask(queries, keys, window)
            assert pairs("causal", queries, keys, window) == sum(map(sum, rows))
            assert pairs("full", queries, keys) == queries * keys
            if window is not None and window % 2:
                near = sum(map(sum, mask(queries, keys, window, around=True)))
                assert pairs("near", queries, keys, window) == near
            if window is not None:
                assert pairs("chunks", queries, keys, window) == sum(map(sum, in_chunks(queries, keys, window)))
                assert seen(queries, keys, window) == sum(any(row[key] for row in rows) for key in range(keys))


@STEP
@pytest.mark.parametrize("name", by_kind(SHAPES))
def test_masked_flops_are_those_of_the_pairs_in_the_mask(name: str, work: Workload) -> None:
    """In each layer, each pair costs 2 FLOPs for each number of a head."""
    model, at = tiny(name), work.axes()
    full, masked = (model.ledger.flops(at, masked=flag, unfolded=True) for flag in (False, True))
    paired = set()
    for number, block in enumerate(model.architecture.blocks()):
        if block.attention is None:
            continue  # no pairs: nothing is masked
        compressed = isinstance(block.attention, CompressedAttention)
        around = not getattr(block.attention, "causal", True)
        chunked = getattr(block.attention, "mask", "") == "chunks"
        if chunked:
            rows = in_chunks(work.tokens, work.context, block.window or 1)
        else:
            window = block.window if compressed else _top(block.attention) or block.window
            rows = mask(work.tokens, work.context, window, around=around)
        visible = sum(map(sum, rows))
        products = [*zip(("scores", "values"), sizes_of_pairs(block.attention), strict=True)]
        if isinstance(block.attention, DifferentialAttention):  # its class runs it once for each half of the values
            products += [(f"second_{which}", size) for which, size in products]
        for which, size in products:
            path = f"blocks.{number}.attn.{which}"
            if which == "scores" and getattr(block.attention, "score_function", "") == "distance":
                continue  # no matmul
            paired.add(path)
            assert masked[path] == 2 * work.batch * block.attention.heads * size * visible
            assert full[path] == 2 * work.batch * block.attention.heads * size * work.tokens * (
                work.context if around else keys_met(work, block.window)
            )
        if compressed:
            for path, (size, rows) in of_compressed(number, block.attention, work).items():
                assert masked[path] == 2 * work.batch * size * sum(map(sum, rows))
                assert full[path] == 2 * work.batch * size * sum(map(len, rows))
                paired.add(path)
        elif isinstance(block.attention, LatentAttention) and block.attention.indexes:
            own = block.attention.indexer
            paths = [f"blocks.{number}.attn.indexer.{which}" for which in ("scores", "sum")]
            pairs_ = sum(map(sum, mask(work.tokens, work.context, None)))
            each = own.heads * own.head_dim, own.heads
            assert [masked[path] for path in paths] == [2 * work.batch * size * pairs_ for size in each]
            paired.update(paths)
    others = [{path: count for path, count in each.items() if path not in paired} for each in (full, masked)]
    assert others[0] == others[1]


def _top(part: Attention | LatentAttention) -> int | None:
    """The number of keys that an indexer selects, if a mask counts them."""
    return part.indexer.top if isinstance(part, LatentAttention) and part.indexer is not None else None


def of_compressed(number: int, attn: CompressedAttention, work: Workload) -> dict:
    """Matmuls with compressed keys: FLOPs of a pair, and a row per new token of the keys that it sees, or of as many as
    the indexer selects."""
    rate = attn.light or attn.heavy
    if rate is None:
        return {}
    old, keys = work.context - work.tokens, range(work.context // rate)
    full = [[rate * key + rate - 1 <= old + query for key in keys] for query in range(work.tokens)]
    chosen = full
    if attn.light is not None:
        chosen = [[seen and sum(row[:key]) < attn.index_top for key, seen in enumerate(row)] for row in full]
    at, each = f"blocks.{number}.attn", attn.heads * attn.head_dim
    found = {f"{at}.compressed_{which}": (each, chosen) for which in ("scores", "values")}
    if attn.light is not None:
        found[f"{at}.compressor.indexer.scores"] = attn.index_heads * attn.index_dim, full
    return found


def test_visible_compressed_keys_by_hand() -> None:
    """A key covers two tokens: of seven tokens, the last three see two, three and three of the three complete keys."""
    sizes = dict.fromkeys(("hidden", "groups", "group_heads", "head_dim", "q_rank", "out_rank"), 1)
    index = dict.fromkeys(("light", "index_heads", "index_dim", "index_top"))
    part = CompressedAttention(**sizes, **index, rope_dim=2, window=2, heavy=2, rotary=Rotary(10_000.0))
    _, rows = of_compressed(0, part, Workload(context=7, tokens=3))["blocks.0.attn.compressed_scores"]
    assert rows == [[True, True, False], [True, True, True], [True, True, True]]


def sizes_of_pairs(attn: Attention | LatentAttention | CompressedAttention) -> tuple[int, int]:
    """Head sizes of queries and keys, and of values."""
    if isinstance(attn, CompressedAttention):
        return attn.head_dim, attn.head_dim
    if isinstance(attn, Attention):
        return attn.head_dim, attn.value_dim or attn.head_dim
    if attn.mla_mode == "absorbed":
        return attn.kv_rank + attn.rope_dim, attn.kv_rank
    return attn.nope_dim + attn.rope_dim, attn.value_dim


def keys_met(work: Workload, window: int | None) -> int:
    """Number of keys that any of the new tokens sees: the columns of the dense matmul."""
    rows = mask(work.tokens, work.context, window)
    return sum(any(row[key] for row in rows) for key in range(work.context))


def test_a_window_that_sees_both_ways_by_hand() -> None:
    """ModernBERT-base: 129 keys. Of 200 tokens the 64 at each end see 65 to 128 keys, the 72 between them all 129."""
    pairs_of_200 = 2 * sum(range(65, 129)) + 72 * 129
    attention = load("modernbert-base").flops(ctx=200, masked=True).models[0]["components"]["attn_scores_values"]
    assert attention == 2 * 2 * 768 * (14 * pairs_of_200 + 8 * 200**2)
    whole, short = (load("modernbert-base").flops(ctx=50, masked=masked).total for masked in (False, True))
    assert whole == short  # all of 50 tokens are in every window


@pytest.mark.parametrize("name", WINDOWED)
def test_a_windowed_layer_caches_its_window(name: str) -> None:
    """min(S, W) tokens: the next query sees one less of them, and itself."""
    model = tiny(name)
    for work in STEPS.values():
        cached = model.ledger.states(work.axes(), unfolded=True)
        for number, block in enumerate(model.architecture.blocks()):
            if block.attention is None:
                continue
            tokens = len(range(work.context)[-block.window :]) if block.window else work.context
            if getattr(block.attention, "borrowed", False):
                assert f"blocks.{number}.attn.k_cache" not in cached
                continue
            if isinstance(block.attention, CompressedAttention):  # whose keys are values too
                assert cached[f"blocks.{number}.attn.kv_cache"] == work.batch * block.attention.head_dim * tokens
                continue
            if isinstance(block.attention, LatentAttention) and block.attention.mla_mode != "unpacked":
                assert cached[f"blocks.{number}.attn.latent_cache"] == work.batch * block.attention.kv_rank * tokens
                assert cached[f"blocks.{number}.attn.rotary_cache"] == work.batch * block.attention.rope_dim * tokens
                continue
            for cache, size in zip(("k_cache", "v_cache"), sizes_of_pairs(block.attention), strict=True):
                each = work.batch * block.attention.kv_heads * size
                assert cached[f"blocks.{number}.attn.{cache}"] == each * tokens


def test_symbols_for_both_lengths_are_the_numbers() -> None:
    """A formula has one symbol for visible keys and one for cached keys; with both bound, it is the count."""
    model, work = tiny("gemma2"), STEPS["chunk"]
    # 13 new tokens and the 4 that the first of them sees; the window
    both = {**work.axes(), VISIBLE_KEYS: 13 + 4, CACHED_KEYS: 5}
    assert model.ledger.flops(both) == model.ledger.flops(work.axes())
    assert model.ledger.states(both) == model.ledger.states(work.axes())
    assert model.ledger.states({**both, CACHED_KEYS: 6}) != model.ledger.states(work.axes())


def test_a_step_that_expands_latents_expands_all_of_them() -> None:
    """deepseek_v3, one token after 22: keys and values of all 23 tokens are computed; unpacked, only the new one's."""
    one = Workload(context=23, tokens=1, batch=1).axes()
    made = 2 * 14 * 6 * 8  # R·N·Hp
    forms = {form: tiny("deepseek_v3", latent_attention=form) for form in ("expanded", "absorbed", "unpacked")}
    counted = {form: model.ledger.flops(one, unfolded=True) for form, model in forms.items()}
    assert [flops["blocks.0.attn.k_b_proj"] for flops in counted.values()] == [23 * made, made, made]
    # Absorbed, a query head has 14 + 4 numbers instead of 8 + 4, a value head 14 instead of 10.
    scores = [2 * 6 * 23 * size for size in (12, 18, 12)]
    assert [flops["blocks.0.attn.scores"] for flops in counted.values()] == scores
    cached = {form: sum(model.ledger.states(one).values()) for form, model in forms.items()}
    assert cached == {"expanded": 3 * 23 * (14 + 4), "absorbed": 3 * 23 * (14 + 4), "unpacked": 3 * 23 * 6 * (12 + 10)}
    params = [model.ledger.parameters() for model in forms.values()]
    assert params[0] == params[1] == params[2]


@pytest.mark.parametrize(("tokens", "touched"), [(1, 4), (2, 7), (3, 7), (1000, 7)])
def test_no_more_experts_are_read_than_there_are(tokens: int, touched: int) -> None:
    """Seven experts, four for each token: one token reads the weights of four, two may read all."""
    model = tiny("mixtral")
    axes = {**model.ledger.groups[1].axes, **Workload(tokens, tokens).axes()}
    banks = [line for line in model.ledger.groups[1].lines if isinstance(line, Matmul) and line.expert_axis]
    assert [line.path.rpartition(".")[2] for line in banks] == ["gate_proj", "up_proj", "down_proj"]
    for line in banks:
        left, weights, out = line.operands(axes)
        inside = (left, out) if "down" not in line.path else (out, left)
        assert weights == touched * 48 * 37
        assert inside == (tokens * 4 * 48, tokens * 4 * 37)


@settings(max_examples=60, deadline=None, database=None)
@given(batch=st.integers(1, 4), tokens=st.integers(1, 6), experts=st.integers(1, 9), seed=st.integers())
def test_the_most_that_can_be_touched_is_touched_by_some_routing(batch, tokens, experts, seed) -> None:
    """Routing to one expert after the other touches min(E, B·T·A) experts; no routing touches more."""
    draw = random.Random(seed)
    active = draw.randint(1, experts)
    part = Experts(hidden=3, experts=experts, active=active, width=5)
    line = next(line for line in part.lines("mlp") if line.path == "mlp.experts.up_proj")
    axes = {**part.axes(), **Workload(tokens, tokens, batch).axes()}
    most = line.operands(axes)[1] // (3 * 5)
    count = batch * tokens
    in_turn = {turn % experts for turn in range(count * active)}
    at_random = set().union(*(draw.sample(range(experts), active) for _ in range(count)))
    assert len(in_turn) == most >= len(at_random)


def test_active_parameters_include_the_experts_of_one_token() -> None:
    """mixtral: 4 of 7 experts of 3·48·37 parameters in each of 2 layers; the router and all else whole."""
    ledger = tiny("mixtral").ledger
    stored, active = sum(ledger.parameters().values()), sum(ledger.active_parameters().values())
    assert stored - active == 2 * (7 - 4) * 3 * 48 * 37
    shared = tiny("deepseek_v3").ledger
    assert sum(shared.parameters().values()) - sum(shared.active_parameters().values()) == 2 * (15 - 3) * 3 * 48 * 37
    dense = tiny("llama").ledger
    assert dense.active_parameters() == dense.parameters()


@pytest.mark.parametrize(
    ("name", "context", "layers", "width"),
    [
        ("gpt-oss-120b", 78_384, 36, 8 * 64),  # 36 · 2 · 8 · 64 · 2 bytes a token
        ("mistral-7b-v0.1", 10_000, 32, 8 * 128),
        ("gemma-2-2b", 7000, 26, 4 * 256),
        ("llama-3.2-1b", 700, 16, 8 * 64),  # no window: the same
    ],
)
def test_a_cache_of_every_token_in_every_layer(name: str, context: int, layers: int, width: int) -> None:
    every = layers * 2 * width * 2 * context
    windowed = name != "llama-3.2-1b"
    for report in (load(name).kv(ctx=context), load(name).memory(ctx=context)):
        assert report.kv_cache_bytes_without_windows == every and (report.kv_cache_bytes < every) is windowed
    ranks = load(name).memory(ctx=context, tp=2)
    assert ranks.kv_cache_bytes_without_windows * 2 == every
