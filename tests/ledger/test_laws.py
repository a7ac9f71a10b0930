"""Laws of the ledger of every small model of every family: one test a model. Kind: law."""

from collections.abc import Callable

from tests.helpers.models import asked, context
from tfacct.accounts.memory import cache_bytes
from tfacct.accounts.metrics import METRICS, Point
from tfacct.architecture.parts import Attention, CrossAttention, LatentAttention, Positions
from tfacct.families.deepseek_v4 import CompressedAttention
from tfacct.families.rare.diffllama import DifferentialAttention
from tfacct.families.rare.rwkv import TimeMix
from tfacct.ledger import paths, workload
from tfacct.ledger.lines import CHUNK, FRONT, LONGEST, RATES, SHARES, WINDOWS, Matmul
from tfacct.ledger.storage import BF16_EACH, storage, width
from tfacct.ledger.workload import CHUNKS, COMPRESSED, HALVES, ONE_BY_ONE, OVERLAPPING, PATCHES, Request, Workload
from tfacct.loading.model import LoadedModel
from tfacct.reports.flops import flops


def products_are_m_k_n(model: LoadedModel) -> None:
    at = asked(model, Workload(context=11, tokens=5, batch=3)).axes()
    for product in model.ledger.products(at):
        dims = product.dims
        assert product.forward == 2 * dims.m * dims.k * dims.n * dims.times
        assert product.backward == 2 * product.forward


def blocks_one_by_one_add_up(model: LoadedModel) -> None:
    at = asked(model, Workload(context=11, tokens=5, batch=3)).axes()
    ledger = model.ledger
    folded, unfolded = ledger.flops(at), ledger.flops(at, unfolded=True)
    assert sum(folded.values()) == sum(unfolded.values())
    assert all("*" not in path for path in unfolded)
    assert sum(ledger.parameters().values()) == sum(ledger.parameters(unfolded=True).values())
    paths = [
        place for group in ledger.groups for line in group.lines for place, _ in group.places(line.path, unfolded=True)
    ]
    assert len(paths) == len(set(paths))


def every_axis_is_explained_once(model: LoadedModel) -> None:
    legend = dict(workload.AXES)
    shape = model.architecture
    for part in shape.parts():
        every = [*part.with_nested()]
        for axis, meaning in (item for one in every for item in one.legend.items()):
            assert legend.setdefault(axis, meaning) == meaning, f"{axis} is explained twice, differently"
        assert set(part.axes()) <= {axis for one in every for axis in one.legend}
        with_axes = set()
        for line in part.lines("x"):
            used = set(getattr(line, "of", line).spec.replace(",", " ").replace("->", " ").split())
            used |= set(getattr(line, "expert_axis", None) or ())
            patches = FRONT in (shape.embed.axes() if isinstance(part, Positions) else part.axes())
            bound = {CHUNKS, ONE_BY_ONE} if CHUNK in part.axes() else {PATCHES} if patches else set()
            bound |= {
                named[kind]
                for kind, rate in RATES.items()
                for named in COMPRESSED.values()
                if rate in part.axes() and kind in named
            }
            bound |= {share for share, size in SHARES.items() if size in part.axes()}
            bound |= {HALVES, OVERLAPPING} if LONGEST in part.axes() else set()
            assert used <= set(workload.AXES) | bound | set(part.axes()), f"{line.path}: {used}"
            with_axes |= used
        # A part declares the size of every axis that it uses or derives another from, and of no other but its window.
        with_axes |= {axis for one in every for made in one.derived().values() for axis in made.split()}
        assert set(part.axes()) - with_axes <= WINDOWS | {FRONT, LONGEST}


def paths_are_put_together_as_they_were(model: LoadedModel) -> None:
    ledger = model.ledger
    every = [line.path for group in ledger.groups for line in group.lines]
    every += [*ledger.parameters(), *ledger.parameters(unfolded=True)]
    assert every and [str(paths.parse(path)) for path in every] == every


def cost_is_that_of_the_products(model: LoadedModel) -> None:
    """FLOPs are those of the matmuls, bytes those of the metrics and `flops --bytes`."""
    work = asked(model, Workload(context=11, tokens=11, batch=3))
    point = Point(model.ledger, work, storage("fp8"), width("fp32"))
    cost = model.ledger.cost(point.at, point.weights, point.cache)
    assert cost.flops == sum(model.ledger.flops(point.at).values())
    moved = [product.moved(point.weights, point.cache) for product in model.ledger.products(point.at)]
    assert cost.read == sum(left + right for left, right, _ in moved) == METRICS["total_read_bytes"].of(point)
    assert cost.written == sum(out for _, _, out in moved) == METRICS["total_written_bytes"].of(point)
    assert cost.moved == METRICS["total_moved_bytes"].of(point)


def the_next_token_is_a_difference(model: LoadedModel) -> None:
    work = asked(model, Workload(context=11, tokens=11))
    then = cache_bytes(model.ledger, {**work.axes(), "S": 12}, BF16_EACH)
    metric = METRICS["kv_bytes_next_token"].of(Point(model.ledger, work))
    assert metric == then - cache_bytes(model.ledger, work.axes(), BF16_EACH)


def grouped_totals_are_the_sum_of_the_lines(model: LoadedModel) -> None:
    ledger, at = model.ledger, asked(model, Workload(23, 13, 9), 0).axes()
    for masked in (False, True):
        products = ledger.products(at, masked=masked)
        assert ledger.total_flops(at, masked=masked) == sum(product.forward for product in products)
        backward = ledger.total_flops(at, masked=masked, backward=True)
        assert backward == sum(product.backward for product in products) > 0


def a_mask_leaves_out_pairs_if_the_convention_says_so(model: LoadedModel) -> None:
    asked = Request(ctx=context(model, 19))
    whole, visible = (flops([model], asked, masked=masked) for masked in (False, True))
    assert (whole.total > visible.total) == ("only attention pairs" in visible.convention)
    assert "only attention pairs" not in whole.convention


def a_decode_step_reads_exactly_the_kv_cache(model: LoadedModel) -> None:
    """The right operands of scores and values are the cache. Mamba reads its states as left operands, and its
    convolution a window of the cached inputs."""
    at = asked(model, Workload(context=11, tokens=1, batch=3)).axes()
    if not model.has_cache:
        assert model.ledger.state_bytes(at, BF16_EACH) == {}, "an encoder alone"
        return
    read = 0
    for group in model.ledger.groups:
        for line in group.lines:
            # Matmuls of activations that read no cache.
            other = "indexer" in line.path or "altup" in line.path or ".hc." in line.path
            if isinstance(line, Matmul) and line.weight_axes() is None and not other:
                read += group.count * 16 * line.operands(group.bound(at))[0 if "mamba" in line.path else 1]
    cached = model.ledger.state_bytes(at, BF16_EACH)
    index = {path: cached.pop(path) for path in [*cached] if path.endswith("index_cache")}
    attending = (both for kind in (LatentAttention, Attention) for both in model.architecture.having(kind))
    choosing = [(stack.count, part.indexer) for stack, part in attending if part.indexer and not part.indexer.reused]
    packed = [own.head_dim * 2 + 1 if hasattr(own, "pool") else own.head_dim for _, own in choosing]
    assert sum(index.values()) == sum(2 * n * 3 * 11 * each for (n, _), each in zip(choosing, packed, strict=True))
    borrowed = [part for part in model.architecture.parts() if getattr(part, "borrowed", False)]
    if borrowed and getattr(borrowed[0], "mla_mode", "") == "unpacked":
        assert read == 8 * sum(cached.values()), "keys and values of each layer, computed from shared latents"
        return
    if borrowed:
        assert read > 8 * sum(cached.values()), "a cache that several layers read"
        return
    attention = next(iter(model.architecture.attentions), None)
    if isinstance(attention, LatentAttention) and attention.mla_mode != "unpacked":
        if model.family == "dots3_note_text":  # a layer of 11 keys, two of 8, by heads or in latents
            made = {"expanded": (6 * (12 + 10), 7 * (39 + 24)), "absorbed": (14 + 4 + 14, 17 + 10 + 17)}
            one, other = made[attention.mla_mode]
            assert read == 16 * 3 * (11 * one + 2 * 8 * other)
            assert sum(cached[path] for path in cached if path.endswith("_cache")) == 2 * 3 * (11 * 18 + 2 * 8 * 27)
            return
        rope = 0 if attention.rope_dim is None else 4
        heads, layers = (
            3 * 11 * 6,
            sum(stack.count for stack, _ in model.architecture.having(LatentAttention)),
        )  # B·S·N; a query head of 8 + 4, a value head of 10, a latent of 14 + 4
        made = {"expanded": heads * (8 + rope + 10), "absorbed": 3 * 11 * (14 + rope + 14)}[attention.mla_mode]
        matrices = sum(n for path, n in model.ledger.states(at).items() if path.endswith("lightning.state"))
        assert read == 16 * (layers * made + matrices)
        assert sum(cached[path] for path in cached if path.endswith("_cache")) == 2 * layers * 3 * 11 * (14 + rope)
    elif any(isinstance(part, TimeMix) for part in model.architecture.parts()):
        assert read == 0 < len(cached), "RWKV reads its state in no matmul"
    elif isinstance(attention, DifferentialAttention):  # keys by each half of the values, and each half by all heads
        assert read == 2 * 8 * sum(cached.values())
    elif isinstance(attention, CompressedAttention):  # keys are read as values too; pending tokens are not read
        keys = ("attn.kv_cache", "attn.compressor.cache")
        assert read == 16 * sum(cached[path] for path in cached if path.endswith(keys))
    elif attention is None:
        states = model.ledger.states(at)  # Mamba-2's recurrent state is in 32 bits
        assert read == 16 * states["blocks.*.mamba.scan_state"] > 0
        windows = model.ledger.products(at)[1]
        assert windows.path == "blocks.*.mamba.conv"
        assert windows.moved(storage("int4"), BF16_EACH)[0] == cached["blocks.*.mamba.conv_state"]
    elif any(getattr(part, "score_function", "product") == "distance" for part in model.architecture.parts()):
        # Scores that are distances read their keys in no matmul.
        far = {"attn": attention, "cross": model.architecture.stacks[0].block.find(CrossAttention)}
        far = {name for name, part in far.items() if part is not None and part.score_function == "distance"}
        silent = {path for path in cached if path.endswith("k_cache") and path.split(".")[2] in far}
        assert read == 8 * sum(count for path, count in cached.items() if path not in silent)
    else:  # the convolution of a hybrid's Mamba layers is a matmul with a weight, and its window is the left operand
        # One token reads the states of DeltaNet and RG-LRU in no matmul.
        without_matmul = ("conv_state", "delta_state", "lru_state", "index_cache", "v_state")
        states = model.ledger.states(at)
        assert read == 16 * sum(count for path, count in states.items() if not path.endswith(without_matmul))


LAWS: tuple[Callable[[LoadedModel], None], ...] = (
    products_are_m_k_n,
    blocks_one_by_one_add_up,
    every_axis_is_explained_once,
    paths_are_put_together_as_they_were,
    cost_is_that_of_the_products,
    the_next_token_is_a_difference,
    grouped_totals_are_the_sum_of_the_lines,
    a_mask_leaves_out_pairs_if_the_convention_says_so,
    a_decode_step_reads_exactly_the_kv_cache,
)


def test_every_law_holds(tiny_model: LoadedModel) -> None:
    for law in LAWS:
        law(tiny_model)
