"""Activations saved for backward, by one rule for each kind of ledger line.

The ledger lists a layer's operations in order, each with the axes of its inputs and output. A matmul saves its input, a
norm an fp32 copy of its input and the tensor that its weight scales, an activation its input, attention what its kernel
needs, and the loss its log-probabilities. `Traits` has the differences of each class.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from tfacct.architecture.parts import Patches
from tfacct.architecture.transformer import Transformer
from tfacct.ledger import paths
from tfacct.ledger.einsum import Axes, axis_names, renamed, rounded_up
from tfacct.ledger.groups import Group, Ledger
from tfacct.ledger.lines import Matmul, Pointwise, Table, Unused
from tfacct.training.step import (
    CHOOSE,
    EMBED,
    LABELS,
    LAYER_INPUT,
    LOSS,
    MEMORY,
    PIXELS,
    RESIDUAL,
    ROTARY,
    AccumulatedGradient,
    BackwardOp,
    DataFlow,
    LayerGraph,
    LayerGroup,
    Role,
    SavedTensor,
    StepGraph,
    Transient,
    WeightCast,
    of_weight,
)
from tfacct.training.traits import Mode, Traits

QUERY_AXES, KEY_AXES = frozenset("TI"), frozenset("SJ")
PADDED = (("T", 32), ("I", 32), ("S", 8), ("J", 8))
"""Axes of tokens that torch's efficient attention kernel pads, and their multiples: queries of logarithms, keys of
masks."""
ACTIVATIONS = {"relu": (0, 2), "gelu_new": (4, 3), "gelu_fast": (7, 3), "relu2": (1, 4)}
"""Tensors that an activation saves, and those in its backward pass, if it differs from kernels that save their input
and have two. relu saves its result."""
FP32_UNDER_AUTOCAST = frozenset(("gelu_new",))
"""Activations written with `pow`, which autocast runs in fp32."""
QKV, GATE_UP = ("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj")
CROSS, ENCODER, FINAL_NORM = "blocks.*.cross", "encoder.", "final_norm"
SLICED = ("B", "Dg", "T")
"""Axes of the result of a matmul with slices that gate each other."""
DELTA_RULE = (
    ("keys", "B Nc Pc Nd Hk", 6),
    ("values", "B Nc Pc Nd Hv", 3),
    ("pairs", "B Nc Nd Pc Qc", 5),
    ("states", "B Nc Nd Hk Hv", 1),
    ("rates", "B Nc Pc Nd", 4),
)
"""Tensors that torch_chunk_gated_delta_rule saves: name, axes, count."""


class LayerRules:
    """Saved tensors and backward operations of the layers of one group of the ledger."""

    def __init__(self, group: Group, axes: Axes, mode: Mode, traits: Traits) -> None:
        self.mode, self.traits, self.axes = mode, traits, {**axes}
        self.order: list[str] = []
        self.saved: dict[str, tuple[str, Role, list[str]]] = {}  # axes, role, saved for; by path
        self.backward: list[BackwardOp] = []
        self.forward: list[BackwardOp] = []
        self.returned: list[Transient] = []  # attention weights that a class returns but does not save
        self.casts: list[WeightCast] = []
        self.made: dict[tuple[str, ...], list[str]] = {}  # tensors by axes, the newest one last
        self.newest: dict[tuple[tuple[str, ...], str], str] = {}  # the newest by axes and `q_`, `k_` or `v_`
        self.newest_of_all = ""
        # The operation that computes each tensor; a layer's inputs have special names.
        self.makers = {LAYER_INPUT: LAYER_INPUT, RESIDUAL: LAYER_INPUT, "read B D J": MEMORY}
        self.flow: dict[str, DataFlow] = {}  # inputs and outputs of each operation
        self.matmuls: dict[str, str] = {}  # the matmul of the class by operation
        self.fp32 = {LAYER_INPUT, RESIDUAL} if mode.autocast else set[str]()  # tensors that stay in fp32 under autocast
        self.in_layer = bool(group.numbers)
        names = [line.path for line in group.lines]
        sums = [number for number, name in enumerate(names) if name.endswith("attn_add")]
        self.parallel = bool(sums) and any(".mlp." in name for name in names[: sums[0]])
        pointwise = [line for line in group.lines if isinstance(line, Pointwise)]
        rotary = [line for line in pointwise if line.kind == "rotary" and "N" in line.spec.split()]
        self.rotates = bool(rotary)
        self.mla = any(name.endswith("kv_a_proj") for name in names)
        joins = traits.rejoins_heads or any("Hr" in line.spec.split() for line in rotary)
        if self.mla:  # values of another size use another kernel
            joins = axes["Hq"] == axes["Hv"]
        self.rejoins = bool(rotary) and joins
        self.biased = any(line.kind == "sum" and KEY_AXES & {*line.spec.split()} for line in pointwise)
        for line in group.lines:
            if line.path.startswith("blocks.*.delta.") and "Nc" in axes_of(line):
                self.delta_rule()
            elif isinstance(line, Table):
                self.embedding(line)
            elif isinstance(line, Matmul):
                (self.matmul if line.weight_axes() is not None else self.of_activations)(line)
            elif isinstance(line, Pointwise):
                self.pointwise(line)

    def graph(self) -> LayerGraph:
        """The graph of one layer, as found by the rules."""
        saved = (SavedTensor(path, axes, tuple(by), role) for path, (axes, role, by) in self.saved.items())
        flow, forward = tuple(self.flow.values()), tuple(self.forward)
        if self.returned and not self.traits.batched_bias:  # until the layer returns
            forward = (*forward, BackwardOp(self.order[-1], (Transient("B T D", "fp32"), *self.returned[-1:])))
        graph = LayerGraph(tuple(self.order), tuple(saved), (), tuple(self.casts), flow=flow, forward=forward)
        return graph._replace(backward=tuple(self.with_waiting(graph)))

    def with_waiting(self, graph: LayerGraph) -> Iterator[BackwardOp]:
        """The backward operations, next to which the gradient of a norm's result waits for that of its first matmul;
        the gradient of a matmul that is added to the residual stream is that of the sum."""
        reads, readers, waiting = graph.reads(), dict[str, list[str]](), dict[str, list[Transient]]()
        for name in self.order:
            for read in reads[name]:
                readers.setdefault(read, []).append(name)
        for norm in (each for each in graph.flow if "norm" in each.at):
            matmuls = [name for name in readers.get(norm.at, ()) if name in self.matmuls]
            if norm.result is None or not matmuls:
                continue
            last = next(name for name in matmuls if self.matmuls[name] == self.matmuls[matmuls[-1]])
            for name in self.order[self.order.index(norm.at) + 1 : self.order.index(last)]:
                waiting.setdefault(name, []).append(Transient(norm.result.axes, norm.result.role))
        if self.parallel and self.mode.autocast:  # casts of the gradients of both results are made at once
            for name in self.order[self.order.index("blocks.*.attn.o_proj.weight") + 1 :]:
                waiting.setdefault(name, []).append(Transient("B T D"))
        for each in self.backward:
            own, added_to, waits = [*each.temporary], readers.get(each.at), waiting.pop(each.at, ())
            summed = bool(added_to) and all(name.endswith("_add") for name in added_to or ())
            if summed and each.at in self.matmuls and not self.mode.autocast:
                own[0] = own[0]._replace(times=0)
            if waits and each.at.endswith(".matmul"):  # to which its own is added by then
                own = []
            yield each._replace(temporary=(*own, *waits))  # then a matmul adds its own gradient

    # One rule for each kind of line.

    def embedding(self, line: Table) -> None:
        """Embedding: saves its ids; token ids are the batch."""
        if line.path != EMBED:
            axes = "T S" if line.path.endswith("rel_bias") else "T"
            self.save(f"{line.path}.ids", axes, line.path, "index")
        self.op(line.path)

    def matmul(self, line: Matmul) -> None:
        """Matmul with a weight: saves its input, once for all matmuls that read it."""
        mode, (read, _, out) = self.mode, (" ".join(self.experts(axes)) for axes in line.einsum[:3])
        name = f"{line.path}.weight"
        owner, _, leaf = line.path.rpartition(".")
        self.matmuls[name] = f"{owner}.{self.fused(leaf)}"
        convolves = "Kc" in read.split()  # and reads the sequence, not windows
        read = " ".join(axis for axis in read.split() if axis != "Kc")
        reads = (self.last(read),)
        if reads[0] == "read B D" and not mode.autocast:  # the first position, a view of all
            read = "B T D"
            reads = (self.last(read),)
        source = f"{line.path}.in" if convolves else reads[0]
        if line.expert_axis is not None and leaf != "down_proj":
            source = f"{owner}.sent"
        weight = " ".join(line.weight_axes() or ())
        cast = mode.autocast and line.expert_axis is None and " " in weight
        if cast:
            self.runs(f"{line.path}.matmul", reads)  # the gradient of its input needs the cast, even if it is frozen
            self.save(f"{line.path}.weight_cast", weight, f"{line.path}.matmul")
            self.casts.append(WeightCast(name, Transient(weight), f"{line.path}.weight_cast"))
            biases = (each for each in line.parameters() if each.path.endswith(".bias"))  # which no gradient needs
            self.casts += (WeightCast(name, Transient(" ".join(bias.axes))) for bias in biases)
            if source in self.fp32 or source.startswith("read "):
                source = f"{self.matmuls[name]}.in".removeprefix(".")
        if leaf == "router" and self.traits.fp32_router and not (mode.fp32 or mode.autocast):
            self.save(f"{line.path}.upcast", read, name, "fp32")
            self.save(f"{line.path}.weight_copy", weight, f"{line.path}.matmul", "fp32")
            self.runs(f"{line.path}.matmul", reads)
        elif "I" not in line.einsum.left or mode.autocast:  # the encoder's output is saved once, before the layers
            self.save(source, read, name, "fp32" if mode.autocast and line.expert_axis is not None else "compute")
            if convolves:  # torch saves its input for both gradients, even if it is frozen
                self.save(source, read, f"{line.path}.convolution")
                self.runs(f"{line.path}.convolution", reads)
        # together with up_proj, whose gradient is in the same tensor
        fused = line.expert_axis is not None and leaf == "gate_proj"
        role = self.role_of_experts(line.path)
        gradients: tuple[Transient, ...] = Transient(out, role, 2 if fused else 1), Transient(read, role)
        if cast:  # that of the weight is cast after that of the result is freed, which is there with 16 bits
            self.op(name, *gradients, Transient(weight, times=-1), reads=reads)
            copied = source == f"{self.matmuls[name]}.in".removeprefix(".")
            self.op(f"{line.path}.matmul", Transient(read, "fp32" if copied else "compute"), reads=reads)
        else:
            self.op(name, *gradients, reads=reads)
        if leaf == "o_proj" and self.returned:  # in cross-attention, next to those of self-attention
            self.forward.append(BackwardOp(name, (Transient(out), *self.returned[-2:])))
        if self.parallel and line.path.endswith("attn.o_proj"):  # added to the residual stream after the MLP
            self.made_by(name, line.path, out.split())
        else:
            self.add(line.path, out)

    def of_activations(self, line: Matmul) -> None:
        """Matmul of two activations: saves both, except in sdpa."""
        left, right, out = line.einsum[:3]
        what = line.path.rpartition(".")[2]
        if what in ("scores", "values") and KEY_AXES & {*left, *right}:
            self.attention(line, what)
            return
        reads = self.last(left), self.last(right)
        for source, operand in zip(reads, (left, right), strict=True):
            self.save(source, " ".join(operand), line.path)
        gradients = Transient(" ".join(left)), Transient(" ".join(right)), Transient(" ".join(out), times=2)
        self.op(line.path, *gradients, reads=reads)
        self.multiplies(line.path, reads, reads)
        self.add(line.path, out)

    def attention(self, line: Matmul, what: str) -> None:
        """Attention. sdpa saves queries, keys, values, their logsumexp and the result; and a mask, and copies of keys
        and values for each query head, if a window, a bias or the class requires it. Eager saves both operands of both
        matmuls."""
        left, right, out = line.einsum[:3]
        mode, axes, owner, by = self.mode, self.axes, line.path.rpartition(".")[0], line.path
        windowed = any(axes.get(width, axes["T"] + 1) <= axes["T"] for width in ("W", "Wb"))
        crosses = owner == CROSS
        masked = mode.sdpa and (self.traits.always_masked or self.biased or windowed or mode.packed)
        keys, values = self.operand(right, "k_"), self.operand(right, "v_")
        one = "K" in axes and axes["K"] * (1 if mode.sdpa else axes["B"]) == 1  # which only needs a view
        one = one and (self.traits.broadcasts_key_head or what != "scores" or keys not in self.fp32)  # a cast is a copy
        copies = (masked or not mode.sdpa) and axes.get("G", 1) != 1 and "G" not in right and not one
        right = (*right, "G") if copies else right
        flash = not (masked or mode.fp32 or (self.mla and axes["Hq"] != axes["Hv"]))  # else the efficient kernel
        upcast = what == "scores" and self.traits.fp32_scores and not mode.autocast
        role: Role = "fp32" if upcast else "compute"
        reads: tuple[str, ...] = (self.last(left), keys if what == "scores" else values)
        saved = reads[0], f"{owner}.v{'_copies' if copies else ''}"
        if what == "scores":
            if self.mla:
                self.op("blocks.*.attn.joined", reads=reads[:1])
                self.op("blocks.*.attn.k_rotated", reads=(keys,))
            made = self.newest.get((canonical(of_queries(right)), "k_"), f"{owner}.k")
            saved = f"{by}.queries" if upcast else reads[0], f"{owner}.k_copies" if copies or upcast else made
            self.save(saved[0], " ".join(left), by, role)
            self.save(saved[1], " ".join(right), by, role)
        else:
            if not mode.sdpa:
                self.save(saved[0], " ".join(left), by)
            if not copies and (mode.sdpa or axes["B"] == 1):  # otherwise matmul makes copies
                self.views(owner, right, out, by)
            elif self.traits.fused_qkv == "views" and f"{owner}.q_norm.mean" in self.saved and not mode.autocast:
                self.save(f"{owner}.v_proj", " ".join(right), f"{owner}.q_norm")  # of the tensor that norms read
            self.save(saved[1], " ".join(right), by)
        if mode.sdpa:  # one kernel, which saves all its inputs if any of them needs a gradient
            reads = (*reads, values)
        else:
            self.multiplies(by, saved, reads)
        gradients = [Transient(" ".join(each)) for each in (left, right)]
        if not mode.sdpa:
            if what == "values":  # their gradient waits until those of queries and keys are computed
                waits = [f"{owner}.{name}" for name in ("scores", "softmax", "softmax.drop")]
                self.backward = [
                    each._replace(temporary=(*each.temporary, gradients[1])) if each.at in waits else each
                    for each in self.backward
                ]
            self.op(by, *gradients, Transient(" ".join(out), times=2), reads=reads)
            if f"{owner}.sinks.weight" in self.order:  # the class keeps masked scores and those less their maximum
                role = "fp32" if mode.autocast else "compute"
                live = [Transient(" ".join(left), role, 2)]
                if mode.autocast:  # queries and keys before casts
                    live.append(Transient(" ".join(out), role, 2))
                if mode.recomputed and "A" in axes:  # a gradient that is computed before the layer is recomputed
                    live.append(Transient("B T A D", role))
                self.forward.append(BackwardOp(by, tuple(live)))
        elif what == "scores":
            rows = [axis for axis in out if axis not in KEY_AXES]
            self.save(f"{by}.logsum", " ".join(rows) if flash else self.padded(rows), by, "fp32")
            if masked and not (self.biased and crosses):  # its biases are zeros, saved once for all layers
                of_mask = QUERY_AXES | KEY_AXES | ({*out} - {"B"} if self.biased else {"B"})
                self.save(f"{by}.mask", self.padded(axis for axis in out if axis in of_mask), by)
                if self.biased and line.mask == "causal":
                    bias = f"{owner}.rel_bias.weight"  # whose gradient is that of visible scores
                    self.op(bias)
                    self.save(f"{by}.visible", " ".join(axis for axis in out if axis not in "BKGN"), bias, "mask")
            self.op(by, reads=reads)
        else:
            self.save(by, " ".join(out), by)
            for number in range(1 if flash else 2):
                self.save(f"{by}.seed.{number}", "", by, "seed" if flash else "index")
            gradients = [Transient(" ".join(out), times=2), Transient(" ".join(right), times=2)]
            self.op(by, *gradients, reads=(f"{owner}.scores", values))
        self.add(by, out)
        if what == "values" and mode.sdpa and self.rejoins and not (masked or mode.fp32):
            self.add(f"{by}.copy", out)  # flash's result has the memory layout of queries, so o_proj reads a copy

    def views(self, owner: str, values: tuple[str, ...], out: tuple[str, ...], by: str) -> None:
        """Tensors that stay alive because values are a view of them: queries and keys before rotation, keys of MLA."""
        shared = self.axes.get("G", 1) != 1
        fused = self.traits.fused_qkv
        if fused == "views" or (fused == "copies if grouped" and not shared):
            if self.rotates:
                heads = dict.fromkeys((*(axis for axis in out if axis not in "KG"), "N"))
                self.save(f"{owner}.q_proj", " ".join(heads), by)
                self.save(f"{owner}.k_proj", " ".join(values), by)
            else:  # of one tensor with queries and keys
                self.save(f"{owner}.v", " ".join(values), f"{owner}.scores")
        if self.mla:
            self.save(f"{by}.of_keys", "B S N Hp", by)

    def pointwise(self, line: Pointwise) -> None:
        """Pointwise work by kind: softmax, norm, linear, activation, gate, or a product with the line's output."""
        path, kind = line.path, line.kind
        axes = self.experts(axis for axis in axis_names(line.spec) if axis != "U")
        spec, made = " ".join(axes), self.made.get(canonical(axes), [])
        if kind == "softmax" and KEY_AXES & {*axes}:
            if not self.mode.sdpa:
                self.softmax(path, spec)
            return
        if kind in ("norm_layer", "norm_rms"):
            self.norm(line, axes, spec)
        elif line.sums or kind == "rotary":
            axes = self.linear(line, axes)
        elif kind == "activation":
            self.activation(line, spec, made)
        elif kind == "gate":
            self.gate(line, axes, spec)
        elif kind == "routing":
            self.routing(path, spec)
        else:
            name = f"{path}.weight" if line.weight or line.bias else path
            source = self.last(axes) if kind == "weighting" else f"{path}.in"
            if kind == "weighting" and self.traits.dense_experts:  # of what experts read
                name, source = f"{path.removesuffix('weighting')}routing", f"{path}.in"
            role = self.role_of_experts(path)
            self.save(source, spec, name, role)
            if kind == "weighting" and "A" in axes:
                shares: Role = "compute" if self.traits.narrow_shares else "fp32"
                self.save(f"{path}.shares", "B T A", name, shares)
                role = "fp32" if shares == "fp32" else role  # of their product with the results, too
            reads = () if name.endswith("routing") else (source,)
            cast = [] if role == self.role_of_experts(path) or self.mode.recomputed else [Transient(spec)]
            self.op(name, Transient(spec, role, 3 if kind == "weighting" else 2), *cast, reads=reads)
            if kind == "weighting":  # the product, its copy in the order of tokens, and what the experts read
                sent = SavedTensor(f"{path.removesuffix('weighting')}experts.sent", spec, ())
                self.forward.append(BackwardOp(name, (sent, Transient(spec, role, 2))))
        self.add(path, axes, only=True)
        if path == FINAL_NORM and "final" in self.mode.dropouts:
            self.drops(path, spec, reads=(path,))
            self.add(f"{path}.dropped", axes, only=True)
        if kind == "activation" and line.function == "relu" and len(made) < 2:
            self.save(path, spec, path)
        if kind == "activation" and ".mlp." in path and "mlp_product" in self.mode.dropouts:
            self.drops(path, spec, times=2)
            self.add(f"{path}.dropped", axes, only=True)

    def routing(self, path: str, spec: str) -> None:
        """Routing: saves the scores in fp32, the largest scores, their sum and indices; the order of tokens by expert,
        its inverse, the token of each row, and the end of each expert's tokens."""
        self.save(f"{path}.scores", spec, path, "fp32")
        self.save(f"{path}.largest", "B T A", path, "fp32")
        self.save(f"{path}.sum", "B T", path, "fp32")
        for name in ("chosen", "order", "back", "rows"):
            self.save(f"{path}.{name}", "B T A", path, "index")
        self.save(f"{path}.ends", "E", path, "int32")
        self.op(path, Transient(spec, "fp32", 2), reads=(self.last(spec),))

    def linear(self, line: Pointwise, axes: tuple[str, ...]) -> tuple[str, ...]:
        """A sum, a rotation, a scale: saves only the mask of a dropout before it. Returns the axes of its result."""
        path, kind = line.path, line.kind
        spec, reads = " ".join(axes), [self.last(axes)]
        if kind == "rotary":
            reads = [self.operand(axes, path.rpartition(".")[2][:2])]
        elif kind == "residual":
            sublayer = path.removesuffix("_add")
            last = [f"{sublayer}.o_proj"] if self.parallel and f"{sublayer}.o_proj" in self.makers else []
            reads = [LAYER_INPUT, *self.made.get(canonical(axes), []), self.newest_of_all, *last]
            if line.dropout:
                self.drops(sublayer, spec, reads=reads[-1:])
        self.op(path, Transient(spec), reads=reads)
        if kind == "rotary" and self.traits.rotary_per_layer:
            for name in "cos", "sin":
                self.save(
                    f"{path.rpartition('.')[0]}.{name}", f"T {axes[-1]}", path, self.traits.rotary_role(self.mode)
                )
        if self.mode.autocast and (kind == "rotary" or (kind in ("residual", "sum") and len(axes) == 3)):
            self.fp32.add(path)
        if kind == "rotary" and not self.mla:  # other dimensions are copied
            return tuple("H" if axis == "Hr" else axis for axis in axes)
        return axes

    def gate(self, line: Pointwise, axes: tuple[str, ...], spec: str) -> None:
        """Gate: one result, after a function if there is one, times another: saves both. Slices of one result are saved
        with it. silu runs in fp32."""
        path, slices = line.path, self.made.get(SLICED, [])
        reads = slices[-1:]
        if self.newest_of_all not in slices:
            self.save(self.last(axes), spec, path)
            reads = [*reads, *self.made.get(canonical(axes), [])[-1 if slices else -2 :]]
        if slices:
            self.save(slices[-1], " ".join(SLICED), path)
        elif line.function == "silu":
            for name in "upcast", "act":
                self.save(f"{path}.{name}", spec, path, "fp32")
        else:  # one value per head in some classes
            own = (own for own, made in self.made.items() if f"{path}_proj" in made)
            self.save(f"{path}.in", " ".join(next(own, axes)), path)
        self.op(path, Transient(spec, times=3), reads=reads)

    def delta_rule(self) -> None:
        """transformers' chunked gated delta rule in fp32, which runs if no kernel is installed."""
        if "delta.rule" in self.order:
            return
        for name, spec, times in DELTA_RULE:
            for number in range(times):
                self.save(f"delta.{name}.{number}", spec, "delta.rule", "fp32")
        self.op("delta.rule", *(Transient(spec, "fp32", 2) for _, spec, _ in DELTA_RULE))

    def softmax(self, path: str, spec: str) -> None:
        """Softmax of eager attention: saves its result in fp32 and cast; with dropout, also the mask and the dropped
        result."""
        narrow = self.traits.narrow_softmax and not self.mode.autocast
        dropout = "attention" in self.mode.dropouts
        role: Role = "compute" if narrow else "fp32"
        self.save(path, spec, path, role)
        self.op(path, Transient(spec, role, 2))
        if self.traits.scores_stay:  # next to masked ones, which softmax casts to fp32
            live = [Transient(spec)]
            if self.rotates or self.axes["B"] != 1:  # copies of queries, keys and values
                live += [Transient("B T N H"), Transient("B T K H", times=2)]
            if role == "fp32" and not self.mode.fp32:
                live.append(Transient(spec, "fp32"))
            self.forward.append(BackwardOp(path, tuple(live)))
        if dropout:
            wide = self.mode.autocast and self.traits.narrow_softmax and not self.traits.casts_softmax
            dropped: Role = "fp32" if wide else "compute"
            self.save(f"{path}.mask", spec, f"{path}.drop", "mask")
            self.op(f"{path}.drop", Transient(spec, dropped, 2))
            if wide:  # their cast is saved
                self.returned.append(Transient(spec, dropped))
            path = f"{path}.dropped"
        elif not (narrow or self.mode.fp32):
            path = f"{path}.cast"
        self.add(path, spec.split())

    def activation(self, line: Pointwise, spec: str, made: list[str]) -> None:
        """Activation: a gated MLP saves gate, up and the activated gate; others save the input, or what its Python
        function saves."""
        path, function, role, mode = line.path, line.function, self.role_of_experts(line.path), self.mode
        count, temporary = (1, 6) if self.traits.written_gelu else ACTIVATIONS.get(function, (1, 2))
        if len(made) > 1:
            clamped = self.traits.clamped_experts and of_experts(path)
            more = ("gate", "sigmoid", "up", "product") if clamped else ("gate",)
            gate, up = made[-2:]
            for source in (gate, up, *(f"{path}.{name}" for name in more)):
                self.save(source, spec, path, role)
            self.op(path, Transient(spec, role, 3), reads=(gate, up))
            if not clamped:
                self.multiplies(path, (f"{path}.gate", up), (gate, up))
                self.multiplies(path, (gate,), (up, gate))
            return
        if function == "xielu":
            self.xielu(path, spec, made[-1], role)
            return
        inner: Role = "fp32" if mode.autocast and function in FP32_UNDER_AUTOCAST else role
        for source in made[-1:] if count else []:
            self.save(source, spec, path, role)
        for number in range(1, count):
            self.save(f"{path}.{number}", spec, path, inner)
        self.op(path, Transient(spec, inner, temporary), *self._cast(inner, role, spec), reads=made[-1:])
        if inner != role:
            self.fp32.add(path)

    def xielu(self, path: str, spec: str, source: str, role: Role) -> None:
        """xIELU as its class writes it. Autocast leaves its two parameters in fp32, and so the products with them."""
        weight, inner = f"{path}.weight", "fp32" if self.mode.autocast else role
        for name, of, tensor_role in (
            (source, path, role),
            (f"{path}.product", path, inner),
            (f"{path}.exponential", path, role),
            (f"{path}.difference", weight, role),
            (f"{path}.mask", path, "mask"),
        ):
            self.save(name, spec, of, tensor_role)
        self.op(path, Transient(spec, inner, 3), Transient(spec, role), reads=(source,))
        self.op(weight, Transient(spec, inner, 4), *self._cast(inner, role, spec), Transient(spec, "mask"))
        if inner != role:
            self.fp32.add(path)

    def _cast(self, inner: Role, role: Role, spec: str) -> list[Transient]:
        """A gradient in 16 bits next to what an activation in fp32 saves, which recomputed layers free before."""
        return [] if inner == role or self.mode.recomputed else [Transient(spec, role)]

    def norm(self, line: Pointwise, axes: tuple[str, ...], spec: str) -> None:
        """Norm: RMSNorm saves an fp32 copy of its input, one value per row, and the tensor that its weight scales.
        LayerNorm saves its input and two values per row; without a weight it runs in fp32, like RMSNorm. A tensor that
        autocast leaves in fp32 is its own copy."""
        mode, path, weight = self.mode, line.path, f"{line.path}.weight"
        together = line.kind == "norm_rms" and "H" in line.weight.split()[1:]  # all heads of a token
        rows = " ".join(axis for axis in axes[:-1] if not (together and axis in line.weight.split()))
        layer_norm = line.kind == "norm_layer" and bool(line.weight)
        if mode.autocast:
            self.fp32.add(path)
        leaf = path.rpartition(".")[2]
        source = self.last(axes, leaf[:2] if leaf.startswith(("q_", "k_")) else "")
        if self.parallel and leaf == "mlp_norm":
            source = LAYER_INPUT
        in_fp32 = source in self.fp32
        if layer_norm and (line.bias or not self.traits.python_layer_norm):
            role: Role = "fp32" if mode.autocast else "compute"
            # The gradient of its input needs the same tensors as that of its weight.
            self.op(f"{path}.normed", Transient(spec, role, 2), reads=(source,))
            for name in f"{path}.normed", weight:
                self.save(source if in_fp32 or not mode.autocast else f"{path}.upcast", spec, name, role)
                for number in "mean", "deviation":
                    self.save(f"{path}.{number}", rows, name, "fp32")
            self.op(weight, Transient(spec, role, 2), reads=(source,))
            return
        if layer_norm:
            for number in "centred", "centred_again":
                self.save(f"{path}.{number}", spec, f"{path}.scale", "fp32")
            self.save(f"{path}.rms", rows, f"{path}.scale", "fp32")
            self.op(f"{path}.scale", Transient(spec, "fp32", 4), reads=(source,))
            self.save(f"{path}.scaled", spec, weight, "fp32")
            self.op(weight, Transient(spec, "fp32", 4))
            return
        own_copy = mode.fp32 or in_fp32
        if self.traits.norm_reads_twice and not own_copy:
            self.save(source, spec, f"{path}.scale")
        for name in ("square", "scale"):
            self.save(source if own_copy else f"{path}.upcast", spec, f"{path}.{name}", "fp32")
        kernel = line.kind == "norm_layer"  # one operation in torch; an RMSNorm is several
        for number in ("rms", "mean") if kernel else ("rms",):
            self.save(f"{path}.{number}", rows, f"{path}.{'square' if kernel else 'scale'}", "fp32")
        temporaries = 4 if own_copy else 5
        self.op(f"{path}.square", Transient(spec, "fp32", 2 if kernel else temporaries), reads=(source,))
        self.op(f"{path}.scale")
        if line.weight:
            in_fp32 = in_fp32 or (self.traits.fp32_norm_weights != "" and leaf != "out_norm")
            if self.traits.fp32_norm_weights == "copies" and leaf != "out_norm":
                self.save(f"{path}.weight_copy", line.weight, f"{path}.scale", "fp32")
            self.save(f"{path}.scaled", spec, weight, "fp32" if in_fp32 else "compute")
            self.op(weight, Transient(spec, "fp32" if in_fp32 else "compute", 3))

    def drops(self, path: str, spec: str, times: int = 1, reads: Iterable[str] = ()) -> None:
        """A dropout saves its mask."""
        self.save(f"{path}.drop", spec, f"{path}.drop", "mask")
        self.op(f"{path}.drop", Transient(spec, times=times), reads=reads)

    # Tensors.

    def padded(self, axes: Iterable[str]) -> str:
        """Axes of a tensor whose last axis torch's efficient attention kernel pads."""
        *others, last = axes
        size, multiple = self.axes[last], dict(PADDED)[last]
        if isinstance(size, int) and size % multiple:
            last = f"{last}{multiple}"
            self.axes[last] = multiple * rounded_up(size, multiple)
        return " ".join((*others, last))

    def experts(self, axes: Iterable[str]) -> tuple[str, ...]:
        """Axes of a tensor of experts; in some classes each expert sees every token."""
        return tuple("E" if axis == "A" and self.traits.dense_experts else axis for axis in axes)

    def role_of_experts(self, path: str) -> Role:
        """Role of tensors of experts. Autocast does not apply to grouped matmuls: experts run in fp32, as their
        weights."""
        return "fp32" if self.mode.autocast and of_experts(path) else "compute"

    def fused(self, leaf: str) -> str:
        """The fused matmul of the class for several of the ledger's."""
        for row, fuses in ((QKV, bool(self.traits.fused_qkv)), (GATE_UP, self.traits.fused_gate_up)):
            if fuses and leaf in row:
                return "+".join(row)
        return leaf

    def save(self, path: str, axes: str, saved_for: str, role: Role = "compute") -> None:
        """Saves a tensor for an operation's gradient; if it is already saved, the larger and wider one."""
        known = self.saved.get(path)
        if known is None:
            self.saved[path] = axes, role, [saved_for]
            return
        larger = len(axes.split()) > len(known[0].split())
        role = "fp32" if "fp32" in (role, known[1]) else known[1]
        self.saved[path] = (axes if larger else known[0]), role, [*known[2], saved_for]

    def op(self, name: str, *temporary: Transient, reads: Iterable[str] = ()) -> None:
        """Adds an operation, the temporaries of its backward pass, and the tensors that it reads."""
        self.runs(name, reads)
        self.backward.append(BackwardOp(name, temporary))

    def runs(self, name: str, reads: Iterable[str]) -> None:
        """Records the inputs of an operation; if none is known, the result of the previous operation."""
        if name not in self.order:
            self.order.append(name)
        makers = tuple(dict.fromkeys(self.makers[tensor] for tensor in reads if tensor in self.makers))
        if makers:
            self.flow[name] = self.flow.get(name, DataFlow(name))._replace(reads=makers)

    def multiplies(self, name: str, saved: Iterable[str], factors: Sequence[str]) -> None:
        """Records a product of two results. Only the gradient of one factor needs the saved tensor of the other."""
        if all(factor in self.makers for factor in factors):
            others = [self.makers[factor] for factor in reversed(factors)]
            known = self.flow.get(name, DataFlow(name))
            self.flow[name] = known._replace(factors=(*known.factors, *zip(saved, others, strict=False)))

    def add(self, path: str, axes: str | Iterable[str], *, only: bool = False) -> None:
        """Records a new tensor with these axes; it replaces all others with the same axes if it is the only one."""
        axes = axes.split() if isinstance(axes, str) else tuple(axes)
        key = canonical(axes)
        self.made[key] = [path] if only else [*self.made.get(key, []), path]
        like = path.rpartition(".")[2][:2]
        self.newest[key, like] = self.newest[(), like] = path
        self.newest_of_all = path
        self.made_by(self.order[-1], path, axes)

    def made_by(self, name: str, path: str, axes: Iterable[str]) -> None:
        """Records the operation that computed a tensor, which others read."""
        self.makers[path] = name
        known = self.flow.get(name, DataFlow(name))
        if known.result is None:
            role: Role = "fp32" if path in self.fp32 else self.role_of_experts(path)
            self.flow[name] = known._replace(result=SavedTensor(path, " ".join(axes), (), role))

    def last(self, axes: str | Iterable[str], like: str = "") -> str:
        """The tensor that a line reads: the newest one with these axes, of queries, keys or values by `like`."""
        key = canonical(axes.split() if isinstance(axes, str) else axes)
        if (key, like) in self.newest:
            return self.newest[key, like]
        if self.made.get(key):
            return self.made[key][-1]
        if key != canonical("BTD"):
            return f"read {' '.join(key)}"
        return LAYER_INPUT if self.in_layer else RESIDUAL

    def operand(self, axes: Iterable[str], like: str) -> str:
        """The queries, keys or values that attention reads, from the same tokens or from others; empty if unknown."""
        every = (canonical(axes), canonical(of_queries(axes)), ())
        return next((self.newest[key, like] for key in every if (key, like) in self.newest), "")


def axes_of(line: object) -> frozenset[str]:
    """Axes of a line."""
    if isinstance(line, Matmul):
        return frozenset(axis for operand in line.einsum[:3] for axis in operand)
    return frozenset(line.spec.split()) if isinstance(line, Pointwise) else frozenset()


def of_experts(path: str) -> bool:
    """True for a line of experts."""
    return ".experts." in path or path.endswith("mlp.weighting")


def of_queries(axes: Iterable[str]) -> tuple[str, ...]:
    """Axes of keys as axes of the tokens that they are computed from."""
    return tuple({"S": "T", "J": "I"}.get(axis, axis) for axis in axes)


def canonical(axes: Iterable[str]) -> tuple[str, ...]:
    """Axes of a tensor in canonical form: query heads are K · G."""
    axes = list(axes)
    named = ["N" if axis == "G" else axis for axis in axes if axis != "K"] if "G" in axes else axes
    return tuple(sorted({"O": "T"}.get(axis, axis) for axis in named))


# The whole step.


def step_graph(model: Transformer, ledger: Ledger, axes: Axes, mode: Mode, traits: Traits) -> StepGraph:
    """Graph of a training step of a decoder, of an encoder, or of an encoder–decoder."""
    if any(getattr(part, "less_one", False) for part in model.parts()):  # 1 is added to an fp32 copy
        traits = traits._replace(fp32_norm_weights="copies")
    if model.encoder is None:
        return _one_side(model, ledger.groups, axes, mode, traits)
    of_encoder = [any(str(line.path).startswith(ENCODER) for line in group.lines) for group in ledger.groups]
    first = 1 + max(number for number, so in enumerate(of_encoder) if so)
    first += not ledger.groups[first].lines  # the end has no norm
    source = {**axes, "T": axes["I"], "S": axes["I"], "O": axes["I"], "I": 0, "J": 0}
    encoder_groups = [_as_decoder(group) for group in ledger.groups[:first]]
    encoder_alone = replace(model, encoder=None, head=None)
    encoder = _one_side(encoder_alone, encoder_groups, source, mode, traits)
    decoder = _one_side(model, ledger.groups[first:], axes, mode, traits)
    role: Role = "fp32" if mode.autocast else "compute"
    added_to = AccumulatedGradient(Transient("B J D", role), f"{CROSS}.v_proj.weight")
    lives = (Transient("B J D", "fp32"),) if mode.autocast else ()
    layers = tuple(group._replace(graph=_of_encoder(group.graph)) for group in encoder.groups)
    return decoder._replace(encoder_layers=layers, accumulated=(added_to,), live_in_forward=lives)


def _as_decoder(group: Group) -> Group:
    """A group of the encoder, with the names and axes of a decoder."""
    names = {"I": "T", "J": "S"}
    lines = (line.renamed(names) for line in group.lines if not isinstance(line, Unused))
    return replace(group, lines=tuple(replace(line, path=line.path.removeprefix(ENCODER)) for line in lines))


def _of_encoder(graph: LayerGraph) -> LayerGraph:
    """A graph of the encoder, with its own names and its axes in the whole model."""
    return graph.mapped(lambda axes, _: renamed(axes, {"T": "I", "S": "J"}), paths.in_encoder)


def _one_side(model: Transformer, groups: Iterable[Group], axes: Axes, mode: Mode, traits: Traits) -> StepGraph:
    found, all_share = [], any(stack.once for stack in model.stacks)
    for group in groups:
        rules = LayerRules(group, group.bound(axes), mode, traits)
        graph = rules.graph()
        sizes = {axis: size for axis, size in rules.axes.items() if axis not in axes}
        shared = _adding(graph, group) if all_share and group.numbers[1:] else None
        found.append(LayerGroup(graph, sizes, group.count, tuple(group.numbers), shared))
    first, *layers, last = found
    every = {axis: size for group in found for axis, size in group.axes.items()}
    before = first._replace(graph=_before(model, first.graph, mode, traits), axes=every)
    step = StepGraph(before, tuple(layers), last._replace(axes=every))
    if model.head is None and model.classes is None:  # an encoder with a decoder
        return step
    return _with_loss(step, model, axes, mode, traits)


def with_shared_casts(graph: StepGraph) -> StepGraph:
    """The step with autocast's weight copies shared by layers that share the weights: a trained weight is copied
    once."""
    once, layers = dict[str, SavedTensor](), list[LayerGroup]()
    for group in graph.layers:
        if group.shared is None:
            layers.append(group)
            continue
        copies = {each.saved for each in group.graph.casts}
        once |= {each.path: each for each in group.graph.saved if each.path in copies}
        first, others = (
            each._replace(saved=tuple(one for one in each.saved if one.path not in copies), casts=())
            for each in (group.graph, group.shared)
        )
        layers.append(group._replace(graph=first, shared=others))
    if not once:
        return graph
    axes = {axis: size for group in layers for axis, size in group.axes.items()}
    with_copies = graph.before.graph._replace(saved=(*graph.before.graph.saved, *once.values()))
    before = graph.before._replace(graph=with_copies, axes={**axes, **graph.before.axes})
    return graph._replace(before=before, layers=tuple(layers))


def _before(model: Transformer, graph: LayerGraph, mode: Mode, traits: Traits) -> LayerGraph:
    """The graph before the layers, with what stays alive for all of them: token ids, cos and sin, the encoder's
    output."""
    labels = (CHOOSE,) if model.encoder is None and model.head is not None and not predicts_next_token(model) else ()
    images = isinstance(model.embed, Patches)
    tokens = SavedTensor("tokens", "B T", (EMBED, *labels), "index")
    saved = [SavedTensor(LABELS, "B", (CHOOSE,), "index") if images else tokens]
    order, backward = [*graph.order], graph.backward
    if model.encoder is not None:
        readers = tuple(f"{CROSS}.{which}_proj.weight" for which in "kv")
        saved.insert(0, SavedTensor(LABELS, "B T", (LABELS, CHOOSE), "index"))
        saved += [] if mode.autocast else [SavedTensor(MEMORY, "B J D", readers)]  # whose casts layers save
        if mode.sdpa and any(getattr(part, "distance_bias", None) is not None for part in model.attentions):
            saved.append(SavedTensor("zeros", "N T J", (f"{CROSS}.scores",)))  # biases of cross-attention
        order = [LABELS, *order]
    if EMBED not in order:  # the decoder's embedding, to whose gradient the encoder's tokens add
        order, backward = [EMBED, *order], (BackwardOp(EMBED, ()), *backward)
    offset = model.positions.offset if model.positions is not None else 0
    for each in graph.saved:
        if each.path.endswith(".ids"):
            if images or (each.path == "pos_embed.ids" and traits.id_buffers and not offset):
                continue  # whole embeddings are added, or ids are a slice of a buffer
            if offset and each.axes == "T" and model.encoder is None:  # computed from the tokens
                each = each._replace(axes="B T")
        elif images and mode.fp32:  # otherwise a cast of the batch
            each = each._replace(path=PIXELS)
        saved.append(each)
    if not traits.rotary_per_layer:
        saved += [SavedTensor(path, axes, (ROTARY,), role) for path, axes, role in rotary_tables(model, mode, traits)]
    if "embedding" in mode.dropouts:
        saved.append(SavedTensor("embed.drop", "B T D", ("embed.drop",), "mask"))
    return graph._replace(order=(*order, ROTARY, "embed.drop"), saved=tuple(saved), backward=backward)


def rotary_axes(model: Transformer) -> list[str]:
    """The axis of a head's rotary dimensions, once for each kind of rotary embedding."""
    kinds: list[tuple[object, str]] = []
    for part in model.attentions:
        kind = getattr(part, "rotary", None), "Hr" if getattr(part, "rope_dim", None) else "H"
        if kind[0] is not None and kind not in kinds:
            kinds.append(kind)
    return [axis for _, axis in kinds]


def rotary_tables(model: Transformer, mode: Mode, traits: Traits) -> Iterator[tuple[str, str, Role]]:
    """Cos and sin of all positions, which all layers with this kind of rotary embedding read: path, axes, role."""
    for number, axis in enumerate(rotary_axes(model)):
        for name in "cos", "sin":
            yield f"{name}{number or ''}", f"T {axis}", traits.rotary_role(mode)


def arguments(model: Transformer, axes: Axes, mode: Mode, traits: Traits) -> tuple[Transient, ...]:
    """Positions and masks passed to layers: with eager attention, one mask for windows and one for causal attention;
    with sdpa, one for windows shorter than the sequence, or one if the class always makes it."""
    positions: tuple[Transient, ...] = () if model.positions is not None else (Transient("T", "index"),)
    if traits.rotary_per_layer:
        positions += tuple(Transient(axes, role) for _, axes, role in rotary_tables(model, mode, traits))
    windows = {stack.block.window for stack in model.stacks if any("attn" in name for name, _ in stack.block.parts())}
    if not mode.sdpa:
        masks = {window is None for window in windows}
        if not any(getattr(part, "causal", True) for part in model.attentions):  # every token sees all others: no mask
            masks.discard(True)
        role: Role = "fp32" if mode.autocast else "compute"  # that of the embeddings
        biases = [getattr(part, "distance_bias", None) for part in model.attentions]
        if any(bias is not None and bias.buckets is None for bias in biases):  # of all layers
            positions += (Transient("B N T S" if traits.batched_bias else "N T S", role),)
        return (*positions, *((Transient("B T S", role, len(masks)),) if masks else ()))
    crossed = any(window is not None and window <= axes["T"] for window in windows)
    return (*positions, *((Transient("T S", "mask"),) if crossed or traits.always_masked or mode.packed else ()))


def buffers_of(model: Transformer, mode: Mode, traits: Traits) -> Iterator[SavedTensor]:
    """Permanent tensors that are not parameters: frequencies, sines, masks, a logits bias."""
    stored: Role = "fp32" if mode.autocast else "compute"
    positions = model.positions
    for number, axis in enumerate(rotary_axes(model)):
        yield SavedTensor(f"rotary{number or ''}.inv_freq", axis, (), "fp32")
    if positions is not None and traits.id_buffers:
        yield SavedTensor("ids", "P", (), "index", traits.id_buffers)
    if traits.embed_scale_buffer:
        yield SavedTensor("embed.scale", "", (), stored)
    if isinstance(model.embed, Patches) and not mode.fp32:
        yield SavedTensor(PIXELS, "B Ti Cc Px", (), "fp32")
    if positions is not None and not positions.stored:
        yield SavedTensor("pos_embed", "D", (), stored, positions.rows * (1 if model.encoder is None else 2))
    if positions is not None and traits.mask_buffers:
        masks = sum(stack.count for stack in model.stacks) if traits.mask_buffers == "per layer" else 1
        yield SavedTensor("mask", "P", (), "mask", masks * positions.rows)
    if traits.biased_logits:
        yield SavedTensor("lm_head.bias", "V", (), stored)


def predicts_next_token(model: Transformer) -> bool:
    """True for a decoder with a language modeling head: its labels are the tokens, shifted by one."""
    causal = any(getattr(part, "causal", True) for part in model.attentions or (None,))
    return model.head is not None and model.encoder is None and causal


def _with_loss(step: StepGraph, model: Transformer, axes: Axes, mode: Mode, traits: Traits) -> StepGraph:
    """The step with its loss: log-probabilities, targets, and their selection."""
    pooled = model.classes is not None and model.classes.pooled
    outputs = "V" if model.head is not None or model.encoder is not None else "Y"
    logits = f"B {outputs}" if pooled else f"B T {outputs}"
    shifts = predicts_next_token(model)
    biased = mode.autocast and traits.biased_logits  # the bias is in fp32, so the sum is
    in_compute_dtype = not (shifts or traits.fp32_loss or biased)
    role: Role = "compute" if in_compute_dtype else "fp32"
    of_weight: Role = "fp32" if shifts or traits.fp32_loss or mode.autocast else "compute"
    saved = [SavedTensor("loss.log_probabilities", logits, (LOSS,), role)]
    backward = [(LOSS, Transient(logits, role, 2))]
    given = Transient(logits, "fp32" if biased else "compute")
    in_forward = [given, Transient("B T D", "fp32")]
    if not (in_compute_dtype or biased):
        in_forward.append(Transient(logits, "fp32"))
    if in_compute_dtype and mode.autocast:
        saved.append(SavedTensor("loss.copy", logits, (CHOOSE,), "fp32"))
        backward.append((CHOOSE, Transient(logits, "fp32")))
    if shifts:  # otherwise they are the labels
        saved.append(SavedTensor("loss.targets", "B T", (CHOOSE,), "index"))
    saved.append(SavedTensor("loss.weight", "", (CHOOSE,), of_weight))
    if shifts and axes["B"] == 1:  # shifted labels are a view of padded ones
        saved.append(SavedTensor("loss.padding", "", (CHOOSE,), "index"))
    of_loss = step.after.graph
    graph = of_loss._replace(
        order=(*of_loss.order, LOSS, CHOOSE),
        saved=(*of_loss.saved, *saved),
        backward=(*of_loss.backward, *(BackwardOp(at, (temporary,)) for at, temporary in backward)),
    )
    return step._replace(
        after=step.after._replace(graph=graph),
        buffers=tuple(buffers_of(model, mode, traits)),
        loss=role,
        logits=given,
        arguments=arguments(model, axes, mode, traits),
        loss_forward=tuple(in_forward) if mode.autocast else (),
    )


def _adding(graph: LayerGraph, group: Group) -> LayerGraph:
    """A layer with shared weights: each gradient is computed in addition to the sum, and then added to it."""
    added: dict[str, list[Transient]] = {}
    for line in group.lines:
        for parameter in line.parameters() if hasattr(line, "parameters") else ():
            name = f"{parameter.path.rpartition('.')[0]}.weight"
            added.setdefault(name, []).append(Transient(" ".join(parameter.axes)))
    backward = [
        each._replace(temporary=(*each.temporary, *added.get(of_weight(each.at), ()))) for each in graph.backward
    ]
    reads = {of_weight(each.at): each.temporary[-1:] for each in graph.backward}
    sums = [
        BackwardOp(f"{at}.added", (*reads.get(at, ()), *gradients, *gradients))
        for at, gradients in added.items()
        if at in graph.order
    ]
    order = (name for at in graph.order for name in ((f"{at}.added", at) if at in added else (at,)))
    return graph._replace(order=tuple(order), backward=(*backward, *sums))
