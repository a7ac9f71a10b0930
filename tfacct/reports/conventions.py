"""What was counted, and what was not, in words: of the models that were asked, or of any where none is named."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tfacct.accounts.metrics import MEMORY_TRAFFIC, Metric
from tfacct.ledger import storage
from tfacct.ledger.lines import WINDOW, Matmul
from tfacct.ledger.workload import OVERLAPPING, TILES, Logits, Request
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Note
from tfacct.reports import model_notes, selection

CONVENTION = "2 FLOPs per multiply-add; products only; bytes of weights and KV cache, every tensor rounded up"
TRAINING = "every tensor that autograd saves or makes; no allocator rounding, kernel workspace or device context"


def products_convention(request: Request, masked: bool, subjects: Sequence[LoadedModel] = ()) -> str:
    """What was counted as FLOPs, for the JSON: of these models, or of any."""
    pairs = pairs_convention(subjects, masked)
    logits = " all logits" if request.logits == "all" else " logits of the last position"
    said = f"2 FLOPs per multiply-add; products only;{pairs}{logits if model_notes.logits(subjects) else ''}"
    return said.removesuffix(";")


def products_counted(request: Request, masked: bool, subjects: Sequence[LoadedModel] = ()) -> str:
    """What was counted as FLOPs, in one line."""
    attention = attention_words(subjects, masked).strip(" ;")
    which = "all logits" if request.logits == "all" else "logits of the last position"
    logits = which if model_notes.logits(subjects) else ""
    return ", ".join(filter(None, ("2·m·k·n per matrix product", attention, logits)))


def products_note(request: Request, masked: bool, subjects: Sequence[LoadedModel] = ()) -> str:
    """What was counted as FLOPs, for a reader: of these models, or of any."""
    attention = attention_words(subjects, masked)
    said = f"Matrix products only, 2·m·k·n each;{attention}{logits_words(subjects, request.logits)}"
    return f"{said.removesuffix(';')}."


def details(
    request: Request, masked: bool, subjects: Sequence[LoadedModel], *more: str, pointwise: bool = False
) -> list[str]:
    """What was counted as FLOPs and what was not, at length."""
    products = products_note(request, masked, subjects)
    return [products] if pointwise else [products, left_out(subjects, *more)]


def counted(
    subjects: Sequence[LoadedModel],
    metrics: Sequence[Metric],
    terms: selection.Counting,
    request: Request,
    to: selection.Counting | None = None,
) -> str:
    """What was counted as these metrics, in one line; nothing where they are numbers of parameters alone. `to`: how
    the new side of a comparison is counted."""
    said = []
    if _of_products(metrics):
        step = ", forward and backward" if terms.train else ""
        said.append(f"{products_counted(request, terms.masked, subjects)}{step}")
    stored, cached = map(" → ".join, dtypes(subjects, terms, to, selection.formats))
    if _moved(metrics):
        said.append(f"bytes moved by unfused kernels, weights in {stored}, activations in {cached}")
    if _kept(metrics):
        kept = f"{model_notes.kept(subjects)} in {cached}"
        weights = "weights and " if stored == cached else f"weights in {stored} and "
        said.append(f"{weights if _weighed(metrics) else ''}{kept}")
    if stepped(metrics):
        said.append(f"a training step in {_recipes(terms, to, at_length=False)}")
    return "; ".join(said)


def counted_at_length(
    subjects: Sequence[LoadedModel],
    metrics: Sequence[Metric],
    terms: selection.Counting,
    request: Request,
    to: selection.Counting | None = None,
) -> list[str]:
    """What was counted as these metrics, a sentence for each kind that there is."""
    said = []
    if _of_products(metrics):
        attention = attention_words(subjects, terms.masked)
        step = "forward and backward" if terms.train else "one forward pass"
        words = f"FLOPs: matrix products only, 2·m·k·n each; {step};{attention}{logits_words(subjects, request.logits)}"
        said.append(f"{words.removesuffix(';')}.")
    stored, cached = map(" → ".join, dtypes(subjects, terms, to, selection.formats))
    if _moved(metrics):
        said.append(
            "Bytes moved by unfused kernels: each operand read once, each result written once;"
            f" weights in {stored}, activations in {cached}."
        )
    if _kept(metrics):
        kept = f"{model_notes.kept(subjects)} in {cached}"
        said.append(f"Bytes: weights in {stored}, {kept}, nothing else." if _weighed(metrics) else f"Bytes: {kept}.")
    if stepped(metrics):
        said.append(f"A training step in {_recipes(terms, to, at_length=True)}.")
    return said


def _recipes(terms: selection.Counting, to: selection.Counting | None, *, at_length: bool) -> str:
    """How a model is trained, on either side, and by what; `at_length` also what is counted of it."""
    sides = (terms, to or terms)
    words = dict.fromkeys(f"{side.recipe.precision} with {side.recipe.description}" for side in sides)
    run = " → ".join(dict.fromkeys(side.recipe.counted for side in sides)) if at_length else "as run by transformers"
    return f"{' → '.join(words)}, {run}"


def stepped(metrics: Sequence[Metric]) -> bool:
    """True if one is of a training step's bytes."""
    return any(metric.of_step for metric in metrics)


def convention(metrics: Sequence[Metric]) -> str:
    """What is counted as metrics of any kind, for the JSON."""
    return f"{CONVENTION}; of a training step {TRAINING}" if stepped(metrics) else CONVENTION


def dtypes(
    subjects: Sequence[LoadedModel],
    terms: selection.Counting,
    to: selection.Counting | None = None,
    weights: Callable[[Sequence[LoadedModel], str | None], str] = selection.stored_name,
) -> list[list[str]]:
    """The dtypes of the weights and those of the cache: one of each, or two where the new side, the last of two models,
    has another. `weights` names those of some models."""
    sides = [(subjects, terms)] if to is None else [(subjects[:1], terms), (subjects[-1:], to)]
    named = [(weights(own, side.dtype), storage.dtypes(side.dtype, side.kv_dtype)[1]) for own, side in sides]
    return [list(dict.fromkeys(each)) for each in zip(*named, strict=True)]


def assumed(subjects: Sequence[LoadedModel], metrics: Sequence[Metric], terms: selection.Counting) -> str:
    """`, weights in bf16 (assumed)`, after a title of metrics of weights whose format is assumed or another."""
    if terms.dtype is not None or not (_weighed(metrics) or _moved(metrics)):
        return ""
    names = {selection.format_name(subject, None) for subject in subjects}
    plain = not any(map(selection.format_assumed, subjects)) and names <= {one.storage().name for one in subjects}
    return "" if plain else f", weights in {selection.formats(subjects, None)}"


def of_models(
    subjects: Sequence[LoadedModel],
    metrics: Sequence[Metric],
    terms: selection.Counting,
    to: selection.Counting | None = None,
) -> list[Note]:
    """What these metrics are of these models: their active parameters, states and narrow storage. `to`: how the new
    side of a comparison is counted."""
    ratios = ("rule_of_thumb_flops", "ratio_to_rule_of_thumb")
    sides = [(subjects, terms.dtype)] if to is None else [(subjects[:1], terms.dtype), (subjects[-1:], to.dtype)]
    found: dict[str, Iterable[str]] = {}
    if any(metric.name in ratios for metric in metrics):
        found["active"] = model_notes.active_notes(subjects)
    if _kept(metrics):
        found["state"] = model_notes.state_notes(subjects, storage.dtypes(terms.dtype, terms.kv_dtype)[1])
    if _weighed(metrics) or _moved(metrics):
        each = (note for own, dtype in sides for note in model_notes.storage_notes(own, dtype))
        found["storage"] = dict.fromkeys(each)
    if any(metric.name == "peak_bytes" for metric in metrics):
        found["optimizer_order"] = _unsure(subjects, terms, to)
    return [Note(key, 2, text) for key, texts in found.items() for text in texts]


def of_windows(settings: Sequence[LoadedModel], metrics: Sequence[Metric], *, masked: bool) -> list[Note]:
    """How many keys a token sees, and what that changes of these metrics: of products, or of what is kept."""
    products = _of_products(metrics) or _moved(metrics)
    cache = any(metric.name.startswith("kv_") or metric.name == "total_bytes" for metric in metrics)
    found = model_notes.window_notes(settings, masked=masked, kept=not products) if products or cache else []
    return [Note("windows", 2, text) for text in found]


def _unsure(subjects: Sequence[LoadedModel], terms: selection.Counting, to: selection.Counting | None) -> list[str]:
    """Says of which optimizers a peak is the most that it can be."""
    from tfacct.training.memory import unsure

    recipes = {side.recipe.optimizer: side.recipe for side in (terms, to or terms)}
    names = [name for name, recipe in recipes.items() if any(unsure(subject, recipe) for subject in subjects)]
    order = "the order of the parameters decides what it holds while it updates"
    return [f"The peak with {name} is the most that it can be: {order}." for name in names]


def _of_products(metrics: Sequence[Metric]) -> bool:
    return any(metric.unit in ("flops", "share", "ratio") for metric in metrics)


def _moved(metrics: Sequence[Metric]) -> bool:
    return any(metric.name in MEMORY_TRAFFIC for metric in metrics)


def _kept(metrics: Sequence[Metric]) -> bool:
    others = (metric for metric in metrics if metric.unit == "bytes" and not metric.of_step)
    return any(metric.name not in MEMORY_TRAFFIC for metric in others)


def _weighed(metrics: Sequence[Metric]) -> bool:
    return any(metric.name in selection.WEIGHED for metric in metrics)


def attention_words(subjects: Sequence[LoadedModel], masked: bool) -> str:
    """Which query–key pairs were counted, as a clause of a sentence; nothing where there are none."""
    if not model_notes.attends(subjects):
        return " no attention, so --masked leaves nothing out;" if masked else ""
    pairs, whole = _pairs(subjects), {"I J": "I × J in an encoder", "T J": "T × J across", "both": "all T × T pairs"}
    if len(pairs) > 1:
        whole |= {"tiles": "in windows of patches only their own", "windows": "in windows that overlap only their own"}
    if masked and "near" in pairs:
        whole["I J"] += " where it has no window"
    whole |= {"overlap": "in an encoder those in windows that overlap"}
    others = [words for pair, words in whole.items() if pair in pairs and pair != "both"]
    if not pairs & {"causal", "window", "chunks", "chosen"} and masked and "near" in pairs:
        return " of attention only the pairs that the windows keep, which see both ways;"
    if pairs and pairs <= {"tiles", "windows"}:
        return f" of attention all pairs in {'each window' if 'tiles' in pairs else 'windows that overlap'};"
    if not pairs & {"causal", "window", "chunks", "chosen"}:
        if pairs & {"tiles", "windows"}:
            return f" of attention {whole['both']}, in windows only their own;"
        return f" {whole['both']} of attention{', which has no causal mask' if masked else ''};"
    if masked:
        named = {"window": "the window", "chunks": "the chunks", "chosen": "the indexer's choice"}
        kept = [words for pair, words in named.items() if pair in pairs]
        mask = f"the causal mask{''.join(f' and {words}' for words in kept)} {'keep' if kept else 'keeps'}"
        rest = [*others, *(["all where there is no causal mask"] if "both" in pairs else [])]
        rest += ["those in the window where it sees both ways"] if "near" in pairs else []
        return f" of attention only the pairs that {mask}{''.join(f', {words}' for words in rest)};"
    window = [WINDOWED] if pairs & {"window", "chunks"} else []
    return f" full T × S attention{''.join(f', {words}' for words in (*window, *others))};"


WINDOWED = "S in a window T + min(S − T, W − 1)"
"""The keys that the new tokens meet in a windowed block."""


def _pairs(subjects: Sequence[LoadedModel]) -> set[str]:
    """Which letters meet in the products of two activations: causal, in a window, both ways; in an encoder behind
    which a decoder stands, and across. Of any model where none is named: causal."""
    found = set() if subjects else {"causal"}
    for group in (group for subject in subjects for group in subject.ledger.groups):
        for line in group.lines:
            if not isinstance(line, Matmul) or line.weight_axes() is not None:
                continue
            axes = set(line.einsum.every)
            if TILES in axes:
                found.add("tiles")
            elif OVERLAPPING in axes:
                found.add("overlap" if group.reads else "windows")
            elif {"T", "S"} <= axes:
                bounded = line.mask == "causal" and WINDOW in group.axes
                found.add("window" if bounded else {"full": "both"}.get(line.mask, line.mask))
            elif {"I", "J"} <= axes or {"T", "J"} <= axes:
                found.add("I J" if "I" in axes else "T J")
                found |= {"near"} if line.mask == "near" else set()
    return found


def pairs_convention(subjects: Sequence[LoadedModel], masked: bool) -> str:
    """The same for the JSON, in ASCII."""
    if not model_notes.attends(subjects):
        return ""
    return attention_words(subjects, masked).replace("×", "x").replace("−", "-")


def logits_words(subjects: Sequence[LoadedModel], which: Logits) -> str:
    """Which positions got logits, as a clause of a sentence; nothing where none did."""
    if not model_notes.logits(subjects):
        return ""
    return f" logits for {'every position' if which == 'all' else 'the last position'};"


def left_out(subjects: Sequence[LoadedModel], *more: str) -> str:
    """The work that is no product."""
    words = ["norms", *(["softmax"] if model_notes.attends(subjects) else []), "activations"]
    words += ["rotary"] if model_notes.attends(subjects) else []
    words += dict.fromkeys(mixer.recurrence for mixer in model_notes.mixers(subjects) if mixer.recurrence)
    return f"Left out: {', '.join([*words, 'additions', 'embedding look-ups', *more])}."
