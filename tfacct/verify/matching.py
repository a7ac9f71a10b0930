"""Pairs the tensors of a user's module with those of the ledger: by a map, known names, shape or position."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from math import prod
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from tfacct.base.errors import ConfigError, cut, nearest
from tfacct.base.record import record
from tfacct.ledger import paths
from tfacct.ledger.evaluated import Tensor
from tfacct.loading.headers import FileTensor
from tfacct.loading.model import LoadedModel
from tfacct.verify.places import Places, fused_shape
from tfacct.verify.tensor_names import WRAPPED

if TYPE_CHECKING:
    from tfacct.reference.user_module import Weight

ATTENTION, MLP, CROSS, NORM = "attn", "mlp", "cross", "norm"

PARTS: Mapping[str, frozenset[str]] = {
    part: frozenset(words.split())
    for part, words in {
        CROSS: "cross cross_attn crossattention encdecattention encoder_attn multihead_attn cross_attention",
        ATTENTION: "attn attention self_attn self_attention sa mha selfattention temporal_block",
        MLP: "mlp ff ffn ffwd feed_forward feedforward ff_layer linear1 linear2 fc1 fc2 block_sparse_moe",
    }.items()
}
"""Words in module names, by part of a layer."""
ROLES: Mapping[str, frozenset[str]] = {
    role: frozenset(words.split())
    for role, words in {
        "q_proj": "q q_proj query wq to_q q_lin q_attn query_proj q_linear w_q linear_q",
        "k_proj": "k k_proj key wk to_k k_lin key_proj k_linear w_k linear_k",
        "v_proj": "v v_proj value values wv to_v v_lin value_proj v_linear w_v linear_v",
        "qkv": "qkv qkv_proj c_attn in_proj wqkv query_key_value to_qkv attn_proj_in",
        "kv": "kv kv_proj to_kv c_kv",
        "o_proj": "o o_proj out_proj to_out output_proj c_o w_o out_lin",
        "gate_proj": "gate gate_proj w_gate",
        "up_proj": "up up_proj c_fc fc fc1 linear1 lin1 dense_h_to_4h wi w_up fc_in",
        "gate_up": "gate_up gate_up_proj w12 wi_fused",
        "down_proj": "down down_proj fc2 linear2 lin2 dense_4h_to_h w_down fc_out",
        "router": "router gate_inp",
        "q_norm": "q_norm q_layernorm norm_q",
        "k_norm": "k_norm k_layernorm norm_k",
    }.items()
}
"""Words for a matmul, by its ledger name."""
OUT = frozenset("proj c_proj out dense wo output o".split())
"""Words for the output projection, of attention or of an MLP."""
LLAMA = {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}
"""Names in Llama's first code; with only two matrices, the first is the up projection."""
LITGPT = {"fc_1": "gate_proj", "fc_2": "up_proj"}
EMBED = frozenset(
    "wte embed embedding embeddings tok_embeddings embed_tokens token_embedding tok_emb token_emb emb".split()
)
POSITIONS = frozenset(
    "wpe pos pos_emb pos_embed position_embedding position_embeddings embed_positions pos_embedding".split()
)
HEAD = frozenset("lm_head head output to_logits unembed embed_out out_head logits".split())
BIASES = re.compile(r"(^|_)(bias|beta|b)$")
SCALES = frozenset("g gamma scale".split())
WRAPPED_LINEAR = frozenset("base base_layer linear".split())
"""Names of the original module in LoRA's wrappers."""


class Place(NamedTuple):
    """Place of a tensor: its name with `*` for the layer, and for numbered modules inside a layer.

    `block`: layer number, None outside the layers; `container`: the name before it.
    """

    template: str
    block: int | None = None
    container: str = ""


class Reading(NamedTuple):
    """Meaning of a name: part and role, empty if unknown; whether it is a bias, or belongs to a norm; and whether the
    role is `sure`, or its word has other meanings."""

    part: str
    role: str
    bias: bool
    norm: bool
    sure: bool = True


def places(shapes: Mapping[str, tuple[int, ...]], blocks: int) -> dict[str, Place]:
    """Places of tensors by name. A list is one of blocks if it has as many as the model, or several that are alike;
    without such lists, if its only entry has modules."""
    children: dict[str, dict[int, dict[str, tuple[int, ...]]]] = defaultdict(lambda: defaultdict(dict))
    for name, shape in shapes.items():
        words = name.split(".")
        for at, word in enumerate(words):
            if word.isdecimal():
                children[".".join(words[:at])][int(word)][".".join(words[at + 1 :])] = shape
    stacks = {name: _stack(entries, blocks) for name, entries in children.items()}
    if not any(stacks.values()):
        stacks = {
            name: {n: tensors for n, tensors in entries.items() if len(entries) == 1 and any("." in t for t in tensors)}
            for name, entries in children.items()
        }
    found: dict[str, Place] = {}
    for name in shapes:
        words = name.split(".")
        numbers = [at for at, word in enumerate(words) if word.isdecimal()]
        block = next((at for at in numbers if int(words[at]) in stacks[".".join(words[:at])]), None)
        if block is None:
            found[name] = Place(name)
            continue
        template = list(words)
        template[block] = _star(stacks[".".join(words[:block])], int(words[block]), blocks)
        for at in numbers:
            if at > block and _is_bundle(children[".".join(words[:at])]):
                template[at] = "*"
                break
        found[name] = Place(".".join(template), int(words[block]), ".".join(words[: block + 1]))
    return found


def _stack(
    children: Mapping[int, Mapping[str, tuple[int, ...]]], blocks: int
) -> Mapping[int, Mapping[str, tuple[int, ...]]]:
    """The blocks in a list, which may also have embeddings or a head: these have no tensor of several alike."""
    if len(children) == blocks:
        return children
    alike = Counter(frozenset(tensors) for tensors in children.values())
    several = [names for names, count in alike.items() if count > 1]
    if not any("." in name for names in several for name in names):
        return {}
    repeated = frozenset[str]().union(*several)
    return {number: tensors for number, tensors in children.items() if repeated & tensors.keys()}


def _star(children: Mapping[int, Mapping[str, tuple[int, ...]]], number: int, blocks: int) -> str:
    """Replacement of the layer number: `2*+1` if each layer is two entries of the list, and this is the second.

    >>> _star({n: {("norm.g", "to_q.weight")[n % 2]: (8,)} for n in range(6)}, 3, blocks=3)
    '2*+1'
    """
    each, rest = divmod(len(children), blocks)
    if each < 2 or rest:
        return "*"
    alike = [other for other, tensors in children.items() if set(tensors) == set(children[number])]
    return f"{each}*+{number % each}" if alike == list(range(number % each, len(children), each)) else "*"


def _is_bundle(children: Mapping[int, Mapping[str, tuple[int, ...]]]) -> bool:
    """True for several modules with the same shapes in order: experts, or heads."""
    first = next(iter(children.values()))
    every = sorted(children) == list(range(len(children)))
    return len(children) > 1 and every and all(tensors == first for tensors in children.values())


def read(template: str, siblings: Iterable[str]) -> Reading:
    """Meaning of a tensor name. `siblings`: the last words of the modules in the same part, for ambiguous names.

    >>> read("layers.*.feed_forward.w2.weight", ["w1", "w2", "w3"])
    Reading(part='mlp', role='down_proj', bias=False, norm=False, sure=True)
    >>> read("transformer.h.*.attn.c_proj.bias", [])
    Reading(part='attn', role='o_proj', bias=True, norm=False, sure=False)
    """
    lowered = [word for word in template.lower().split(".") if word]
    star = next((at for at, word in enumerate(lowered) if "*" in word), -1)
    inside = lowered[star + 1 :] or [*lowered[:star], lowered[star - 1]]  # `wq.*`: a list of weights names them
    leaf, modules = inside[-1], [word for word in inside[:-1] if not word.isdecimal() and word != "*"]
    if len(modules) > 1 and modules[-1] in WRAPPED_LINEAR:
        modules.pop()
    last = modules[-1] if modules else ""
    if leaf.startswith("in_proj_"):
        last = "in_proj"
    bias = BIASES.search(leaf) is not None
    part = next((part for part, words in PARTS.items() if words.intersection(modules)), "")
    role = next((role for role, words in ROLES.items() if last in words), "")
    others = set(siblings)
    if role == "gate_proj" and last == "gate" and "experts" in others:
        role = "router"
    if not role and last in LLAMA and {"w1", "w2"} <= others:
        role = LLAMA[last] if "w3" in others else {"w1": "up_proj", "w2": "down_proj"}.get(last, "")
        part = part or MLP
    if not role and last in LITGPT:
        role, part = LITGPT[last] if "fc_2" in others else "up_proj", part or MLP
    if role == "up_proj" and last == "fc" and "fc_2" in others:
        role = ""
    sure = not (last in OUT and part and not role)
    if not sure or (role == "o_proj" and part == MLP):
        role = "down_proj" if part == MLP else "o_proj"
    norm = "norm" in last or last.startswith("ln") or (leaf in SCALES and not role)
    if norm and not part and "post" not in last:
        part = next((part for part, words in PARTS.items() if words.intersection(last.split("_"))), "")
    if star < 0:
        words = set(modules) | {leaf}
        tables = ((POSITIONS, "pos_embed"), (EMBED, "embed"), (HEAD, "lm_head"))
        role = next((name for known, name in tables if words & known), "") if not norm else ""
        part = ""
    if role not in ("q_norm", "k_norm") and norm:
        role = ""
    return Reading(part, role, bias, norm, sure)


FUSED = {"qkv": ("q_proj", "k_proj", "v_proj"), "kv": ("k_proj", "v_proj"), "gate_up": ("gate_proj", "up_proj")}
"""Matmuls that code may fuse, by ledger name of the result."""
ENOUGH = 4.0
"""Smallest score of a pair: equal shapes in the same number of layers, or words with the same meaning."""


FUSED_LAST, FUSED_FIRST, NEVER_FUSED = -0.5, 0.5, -100.0
"""Points for fused matmuls: with equal shapes they come after a single matmul, before it or never."""


class CodeTensor(NamedTuple):
    """A tensor of the code in one layer: several if each expert or head has its own."""

    weights: tuple[Weight, ...]
    container: str = ""

    @property
    def name(self) -> str:
        """Name of the first tensor."""
        return self.weights[0].name

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape, preceded by the number of tensors if there are several."""
        one = self.weights[0].shape
        return one if len(self.weights) == 1 else (len(self.weights), *one)

    @property
    def elements(self) -> int:
        """Number of elements."""
        return sum(prod(weight.shape) for weight in self.weights)


class Match(NamedTuple):
    """A tensor of the code and the ledger tensors in it, as unfolded paths."""

    config_tensors: tuple[Tensor, ...]
    code: CodeTensor

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape that the ledger expects, outputs first."""
        return fused_shape(self.config_tensors)

    @property
    def elements(self) -> int:
        """Number of elements in the config."""
        return sum(int(tensor.elements) for tensor in self.config_tensors)

    @property
    def fits(self) -> bool:
        """True if the code's tensor has the same number of elements and, for matrices, the same sides."""
        wanted, found = self.shape, self.code.shape
        if self.elements != self.code.elements:
            return False
        plain = [size for size in found if size != 1]
        return len(plain) != 2 or len(wanted) != 2 or sorted(wanted) == sorted(plain)


@record
class Matched:
    """All tensors, paired or unpaired. `by`: how many pairs were found by a `map`, by `names`, by `shape` and similar
    names, and only by shape and `position` in the module tree."""

    matches: Sequence[Match]
    missing: Sequence[Tensor]
    over: Sequence[CodeTensor]
    by: Mapping[str, int]
    pairs: Mapping[str, tuple[str, ...]]
    """Names of the code with `*` for a block, and the paths that each means: the entries of a map."""
    positioned: Mapping[str, int] = field(default_factory=dict)
    """Names of the code that were paired by shape and position alone, and of how many tensors each is the name."""
    left_out: Sequence[str] = ()
    """Names that the map excludes."""
    blocks: tuple[int, int] = (0, 0)
    """Numbers of layers in code and config, if they differ."""

    @property
    def complete(self) -> bool:
        """True if every tensor has a fitting pair."""
        return not self.missing and not self.over and all(one.fits for one in self.matches)

    @property
    def alone(self) -> int:
        """Number of unpaired tensors."""
        return len(self.missing) + len(self.over)

    @property
    def elements(self) -> tuple[int, int]:
        """Total elements of the code and of the config."""
        in_code = sum(one.code.elements for one in self.matches) + sum(one.elements for one in self.over)
        in_config = sum(one.elements for one in self.matches) + sum(int(tensor.elements) for tensor in self.missing)
        return in_code, in_config


class _Sides:
    """Both sides by their names in every layer, and the pairs so far."""

    def __init__(self, model: LoadedModel, weights: Sequence[Weight], *, named: bool, fused: float) -> None:
        self.model, self.fused, self.named = model, fused, Places(model, outputs_first=False)
        self.config_tensors: dict[str, list[Tensor]] = defaultdict(list)
        for tensor in model.ledger.tensors(unfolded=True):
            self.config_tensors[paths.starred(tensor.path)].append(tensor)
        for tensors in self.config_tensors.values():
            tensors.sort(key=lambda tensor: int(paths.parse(tensor.path).number or 0))
        blocks = max(len(tensors) for tensors in self.config_tensors.values())
        self.blocks = sum(stack.count for stack in model.architecture.stacks) or blocks
        stored = [weight for weight in weights if not weight.same_as and not weight.buffer]
        self.places = places({weight.name: weight.shape for weight in stored}, self.blocks)
        self.code_tensors: dict[str, list[CodeTensor]] = {}
        for template, placed in _grouped(stored, self.places):
            self.code_tensors |= self._by_kind(template, placed) if named else {template: placed}
        siblings: dict[str, set[str]] = defaultdict(set)
        for template in self.code_tensors:
            words = paths.module_of(template).split(".")
            for at, word in enumerate(words):
                siblings[".".join(words[:at])].add(word.lower())
        self.readings = {
            name: read(name, siblings[paths.module_of(paths.module_of(name))]) for name in self.code_tensors
        }
        if not named:
            self.readings = {name: Reading("", "", reading.bias, norm=False) for name, reading in self.readings.items()}
        self.pairs: dict[str, tuple[str, ...]] = {}
        self.free = dict.fromkeys(self.config_tensors)
        self.left_out: list[str] = []

    def _by_kind(self, template: str, placed: list[CodeTensor]) -> dict[str, list[CodeTensor]]:
        """Tensors of one name, apart if the class has it in layers of several kinds: `*(3…)` for those of the kind of
        layer 3."""
        slots = [self.named.place(_file_tensor(one.weights[0])).slot for one in placed]
        kinds: dict[tuple[str, ...], list[CodeTensor]] = defaultdict(list)
        for one, slot in zip(placed, slots, strict=True):
            kinds[() if slot is None else tuple(paths.starred(tensor.path) for tensor in slot.tensors)].append(one)
        if () in kinds or len(kinds) == 1:
            return {template: placed}
        return {template.replace("*", f"*({self.places[alike[0].name].block}…)", 1): alike for alike in kinds.values()}

    def pair(self, template: str, config_paths: Sequence[str]) -> None:
        self.pairs[template] = tuple(config_paths)
        for path in config_paths:
            self.free.pop(path, None)

    def apart(self, name: str, config_paths: Sequence[str]) -> bool:
        """True for a bias of the code whose weight is paired with another module than that of `config_paths`."""
        weight = self.pairs.get(_weight_of(name)) if name.endswith("bias") else None
        return weight is not None and not {*map(paths.module_of, config_paths)} <= {*map(paths.module_of, weight)}

    @property
    def waiting(self) -> list[str]:
        """Unpaired names."""
        return [name for name in self.code_tensors if name not in self.pairs and name not in self.left_out]


def _grouped(stored: Sequence[Weight], places: Mapping[str, Place]) -> Iterator[tuple[str, list[CodeTensor]]]:
    found: dict[str, dict[tuple[str, int], list[Weight]]] = defaultdict(lambda: defaultdict(list))
    for weight in stored:
        place = places[weight.name]
        found[place.template][(place.container, place.block or 0)].append(weight)
    for template, blocks in found.items():
        ordered = sorted(blocks.items(), key=lambda each: each[0][1])
        yield template, [CodeTensor(tuple(weights), container) for (container, _), weights in ordered]


def match(model: LoadedModel, weights: Sequence[Weight], given: Mapping[str, Sequence[str]] | None = None) -> Matched:
    """Pairs the tensors of a module with those of a model. `given`: a map, names of the code to paths of the ledger.

    If similar names leave a difference although both sides have the same number of elements, the names may be
    misleading: pairs by shape and position are used if they leave no difference. If tensors are left over, a matmul of
    another size may have been matched to fused matmuls: pairs without fused matmuls are used if they leave fewer.
    Raises ConfigError for a map with unknown names.
    """
    found = _match(model, weights, given, named=True)
    if found.complete:
        return found
    if len(set(found.elements)) == 1:
        unnamed = (_match(model, weights, given, named=False, fused=fused) for fused in (FUSED_LAST, FUSED_FIRST))
        if (complete := next((one for one in unnamed if one.complete), None)) is not None:
            return complete
    if not found.over:
        return found
    return min(found, _match(model, weights, given, named=True, fused=NEVER_FUSED), key=lambda one: one.alone)


def _match(
    model: LoadedModel,
    weights: Sequence[Weight],
    given: Mapping[str, Sequence[str]] | None,
    *,
    named: bool,
    fused: float = FUSED_LAST,
) -> Matched:
    """Pairs by the names of the class or a map, by similar names if `named`, by shape and by position. `fused`: points
    added to the score of fused matmuls."""
    unwrapped = [weight._replace(name=WRAPPED.sub("", weight.name)) for weight in weights]
    sides = _Sides(model, unwrapped, named=named, fused=fused)
    by_shape = "shape" if named else "position"
    ways: Sequence[tuple[str, Callable[[_Sides], None]]] = (
        ("map", partial(_by_map, given=given or {})),
        ("names", _by_names),
        (by_shape, _by_shape),
        ("position", _by_position),
        (by_shape, _by_order),
    )
    way_of: dict[str, str] = {}
    for way, pair in ways:
        pair(sides)
        way_of |= {name: way for name in sides.pairs if name not in way_of}
    by = dict.fromkeys(("map", "names", "shape", "position"), 0) | Counter(way_of.values())
    positioned = {name: len(sides.code_tensors[name]) for name, way in way_of.items() if way == "position"}
    matches: list[Match] = []
    over = [each for name in sides.waiting for each in sides.code_tensors[name]]
    missing = [tensor for path in sides.free for tensor in sides.config_tensors[path]]
    for template, config_paths in sides.pairs.items():
        code_tensors, every = sides.code_tensors[template], [sides.config_tensors[path] for path in config_paths]
        count = min(map(len, every))
        for number, one in enumerate(code_tensors):
            if number < count:
                matches.append(Match(tuple(tensors[number] for tensors in every), one))
            else:
                over.append(one)
        missing += [tensor for tensors in every for tensor in tensors[len(code_tensors) :]]
    buffers = {WRAPPED.sub("", weight.name): weight for weight in weights if weight.buffer}
    missing, in_buffers = _in_buffers(model, missing, list(buffers.values()))
    order = {tensor.path: number for number, tensor in enumerate(model.ledger.tensors(unfolded=True))}
    matches = sorted([*matches, *in_buffers], key=lambda one: order[one.config_tensors[0].path])
    return Matched(matches, missing, over, by, dict(sides.pairs), positioned, sides.left_out, _blocks(sides))


def _blocks(sides: _Sides) -> tuple[int, int]:
    """Numbers of layers in code and config, if most paired names show that they differ."""
    counts = [
        (len(sides.code_tensors[name]), len(sides.config_tensors[config_paths[0]]))
        for name, config_paths in sides.pairs.items()
        if paths.repeated(config_paths[0])
    ]
    apart = [pair for pair in counts if pair[0] != pair[1]]
    return max(set(apart), key=apart.count) if len(apart) * 2 > len(counts) else (0, 0)


def _in_buffers(
    model: LoadedModel, missing: Sequence[Tensor], buffers: Sequence[Weight]
) -> tuple[list[Tensor], list[Match]]:
    """Tensors that the ledger counts and a class stores as buffers, such as a routing bias."""
    if not missing or not buffers:
        return list(missing), []
    named, found = Places(model, outputs_first=False), []
    lost = {tensor.path for tensor in missing}
    for buffer in buffers:
        slot = named.place(_file_tensor(buffer)).slot
        if slot is not None and {tensor.path for tensor in slot.tensors} <= lost:
            found.append(Match(slot.tensors, CodeTensor((buffer,))))
            lost -= {tensor.path for tensor in slot.tensors}
    return [tensor for tensor in missing if tensor.path in lost], found


def _file_tensor(weight: Weight) -> FileTensor:
    return FileTensor(weight.name, "fp32", weight.shape, 4 * prod(weight.shape))


def _by_map(sides: _Sides, given: Mapping[str, Sequence[str]]) -> None:
    for name, config_paths in given.items():
        if name not in sides.code_tensors:
            raise ConfigError(
                f"the map names {cut(name)!r}, which is not in the module", nearest(name, sides.code_tensors)
            )
        for path in config_paths:
            if path not in sides.config_tensors:
                raise ConfigError(
                    f"the map names {cut(path)!r}, which is not in the config", nearest(path, sides.config_tensors)
                )
            if path not in sides.free:
                raise ConfigError(f"the map names {cut(path)!r} twice")
        if config_paths:
            sides.pair(name, config_paths)
        else:
            sides.left_out.append(name)


def _by_names(sides: _Sides) -> None:
    """Pairs by the names of the family's class and of its files, if most tensors have such names: a single one is a
    coincidence."""
    placed: dict[str, tuple[str, ...]] = {}
    for template in sides.waiting:
        code_tensors = sides.code_tensors[template]
        if len(code_tensors[0].weights) > 1 and ".experts." not in template:
            continue
        slots = [sides.named.place(_file_tensor(one.weights[0])).slot for one in code_tensors]
        found = [tuple(paths.starred(tensor.path) for tensor in slot.tensors) for slot in slots if slot is not None]
        if found and len(set(found)) == 1:
            placed[template] = found[0]
    if 2 * len(placed) > len(sides.waiting):
        for template, config_paths in placed.items():
            if all(path in sides.free for path in config_paths):
                sides.pair(template, config_paths)


def _by_shape(sides: _Sides) -> None:
    """Pairs by names, shapes and order, the best first: biases after weights, each in the module of its weight."""
    for bias in (False, True):
        waiting = sides.waiting
        named = [name for name in waiting if sides.readings[name].bias == bias]
        _pair_by_shape(sides, [name for name in named if not bias or _weight_of(name) not in waiting])


def _weight_of(bias: str) -> str:
    """Name of the weight next to a bias."""
    return re.sub("bias$", "weight", bias)


def _pair_by_shape(sides: _Sides, waiting: Sequence[str]) -> None:
    free = list(sides.free)
    order = {name: number for number, name in enumerate(sides.code_tensors)}
    place = {path: number for number, path in enumerate(sides.config_tensors)}
    scored: list[tuple[float, int, int, str, tuple[str, ...]]] = []
    for name in waiting:
        for config_paths in _candidates(free):
            score = _score(sides, name, config_paths)
            if score >= ENOUGH:
                scored.append((-score, order[name], place[config_paths[0]], name, config_paths))
    for _, _, _, name, config_paths in sorted(scored):
        if name not in sides.pairs and all(path in sides.free for path in config_paths):
            sides.pair(name, config_paths)


def _by_position(sides: _Sides) -> None:
    """Pairs of remaining tensors with equal shapes and counts, in the order of the module tree, if both sides have the
    same number of them and no name contradicts the part."""

    def shapes(tensors: Sequence[Any]) -> tuple[bool, tuple[tuple[int, ...], ...]]:
        every = (tensor.shape if isinstance(tensor, CodeTensor) else fused_shape((tensor,)) for tensor in tensors)
        return len(tensors) > 1, tuple(tuple(sorted(size for size in shape if size != 1)) for shape in every)

    code = {name: (sides.readings[name].bias, *shapes(sides.code_tensors[name])) for name in sides.waiting}
    config = {path: (_read_paths((path,))[2], *shapes(sides.config_tensors[path])) for path in sides.free}
    for pairs in _in_order(code, config):
        if not any(_contradicts(sides, name, path) for name, path in pairs):
            for name, path in pairs:
                sides.pair(name, (path,))


def _by_order(sides: _Sides) -> None:
    """Pairs of remaining tensors, in order, for each kind with equal numbers on both sides: in or outside layers,
    biases, norms."""
    code = {name: ("*" in name, sides.readings[name].bias, sides.readings[name].norm) for name in sides.waiting}
    config = {path: (paths.repeated(path), *_read_paths((path,))[2:]) for path in sides.free}
    for pairs in _in_order(dict(sorted(code.items(), key=itemgetter(1))), config):
        for name, path in pairs:
            if not _contradicts(sides, name, path):
                sides.pair(name, (path,))


def _in_order(code: Mapping[str, object], config: Mapping[str, object]) -> Iterator[list[tuple[str, str]]]:
    """Pairs of code names and config paths, for each kind with equal numbers on both sides."""
    for wanted in dict.fromkeys(code.values()):
        code_names, config_names = ([name for name, kind in side.items() if kind == wanted] for side in (code, config))
        if len(code_names) == len(config_names):
            yield list(zip(code_names, config_names, strict=True))


def _contradicts(sides: _Sides, name: str, path: str) -> bool:
    """True if a name of the code contradicts a path of the config."""
    reading, (part, role, _, norm) = sides.readings[name], _read_paths((path,))
    other = (reading.role and role and reading.role != role) or (reading.part and part and reading.part != part)
    return bool(other) or (reading.norm and not norm) or sides.apart(name, (path,))


def _candidates(free: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Every single tensor, and groups of tensors that code may fuse."""
    for path in free:
        yield (path,)
    holders = {path: path.rpartition(".")[0].rpartition(".")[0] for path in free}
    for path in free:
        leaf = paths.name_of(path)
        for parts in FUSED.values():
            if paths.name_of(paths.module_of(path)) == parts[0]:
                every = tuple(f"{holders[path]}.{part}.{leaf}" for part in parts)
                if all(one in holders for one in every):
                    yield every


def _score(sides: _Sides, name: str, config_paths: tuple[str, ...]) -> float:
    """Similarity of a tensor of the code and tensors of the config; below ENOUGH if they do not match."""
    reading, code_tensors = sides.readings[name], sides.code_tensors[name]
    config_tensors = [sides.config_tensors[path] for path in config_paths]
    if (len(code_tensors[0].shape) == 1) != (len(fused_shape([tensors[0] for tensors in config_tensors])) == 1):
        return 0.0  # a vector is not a matrix, for any name
    part, role, bias, norm = _read_paths(config_paths)
    if ("*" in name) != paths.repeated(config_paths[0]) and ("*" in name or len(config_tensors[0]) > 1):
        return 0.0
    if reading.bias != bias or reading.norm != norm or sides.apart(name, config_paths):
        return 0.0
    score = 0.0
    if reading.role and role:
        score += (8.0 if reading.role == role else -8.0) if reading.sure else (4.0 if reading.role == role else -2.0)
    if reading.part and part:
        score += 2.0 if reading.part == part else -6.0
    score += 2.0 if len(code_tensors) == len(config_tensors[0]) else 0.0
    wanted = [
        fused_shape([tensors[min(n, len(tensors) - 1)] for tensors in config_tensors]) for n in range(len(code_tensors))
    ]
    return score + _alike(code_tensors, wanted) + (sides.fused if len(config_paths) > 1 else 0.0)


def _alike(code_tensors: Sequence[CodeTensor], wanted: Sequence[tuple[int, ...]]) -> float:
    """Points for equal shapes, by those of most layers."""
    each = [_shapes(one.shape, shape) for one, shape in zip(code_tensors, wanted, strict=True)]
    return max(set(each), key=each.count)


def _shapes(code: tuple[int, ...], config: tuple[int, ...]) -> float:
    if code == config:
        return 5.0
    if sorted(code) == sorted(config):
        return 4.0
    if prod(code) == prod(config):
        return 3.0
    if len(code) == len(config) == 2:
        return 1.5 if any(a == b for a, b in zip(code, config, strict=True)) else 0.0
    return 0.0


def _read_paths(config_paths: tuple[str, ...]) -> tuple[str, str, bool, bool]:
    """Part, role, bias and norm flags of one or several config paths."""
    first = paths.parse(config_paths[0])
    leaf = paths.name_of(config_paths[0])
    module = paths.name_of(paths.module_of(config_paths[0]))
    norm = "norm" in module
    if not first.stack:
        role = {"embed": "embed", "pos_embed": "pos_embed", "lm_head": "lm_head"}.get(module, "")
        return "", role, leaf == "bias", norm
    names = tuple(paths.name_of(paths.module_of(path)) for path in config_paths)
    role = next((fused for fused, parts in FUSED.items() if parts == names), "") if len(config_paths) > 1 else module
    known = role in ROLES
    part = first.part.removesuffix("_norm").removesuffix("_post")
    return part, role if known else "", leaf == "bias", norm
