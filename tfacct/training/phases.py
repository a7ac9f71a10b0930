"""Phases of a training step: what is alive in each, with gradient accumulation, and the phase with the peak memory.

Parameters, optimizer state, gradients so far, saved activations and temporaries are added up at the end of the forward
pass, at loss and head, in the backward pass of the layers, at the embedding, and in the optimizer step. In the backward
pass of layers of one kind, the sum is linear in the layer number, so only the ends can be the peak: the last layer, the
first one, and the second one, which is the last that prefetches another layer under FSDP.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from operator import itemgetter
from typing import NamedTuple

from tfacct.ledger import paths
from tfacct.ledger.einsum import Size, size
from tfacct.ledger.groups import Group
from tfacct.ledger.lines import Line, Matmul, Parameter, Pointwise, Table
from tfacct.parallel.shard_shapes import is_routing_bias
from tfacct.training.step import (
    CHOOSE,
    EMBED,
    INPUTS_ON_DEVICE,
    LABELS,
    LAYER_INPUT,
    PIXELS,
    LayerGraph,
    LayerGroup,
    SavedTensor,
    TrainingStep,
    Transient,
    of_weight,
    role_bytes,
    sublayer,
)

BATCH = frozenset(("tokens", LABELS, PIXELS, paths.in_encoder("tokens")))
"""Saved tensors that are the batch: they stay until the step ends."""
FORWARD_END, LOSS = "end of forward", "loss, backward"
"""Names of phases that every step has."""


PARTS = ("weights", "optimizer_state", "gradients", "saved", "temporary", "gathered")
"""Parts of the memory of a phase."""


class Phase(NamedTuple):
    """Bytes that are alive in one phase of a step. `operation`: the running operation. `gathered`: weights of other
    ranks. `layer`: number of the layer in its backward pass."""

    name: str
    operation: str
    weights: Size
    optimizer_state: Size
    gradients: Size
    saved: Size
    temporary: Size
    gathered: Size = 0
    layer: int | None = None

    @property
    def total(self) -> Size:
        """Total bytes."""
        return self.weights + self.optimizer_state + self.gradients + self.saved + self.temporary + self.gathered


def peak(phases: Iterable[Phase]) -> Phase:
    """The phase with the most bytes; of equal ones, the first."""
    return max(phases, key=lambda phase: int(phase.total))


class Operation(NamedTuple):
    """Bytes at one backward operation of a layer: saved tensors that are still alive, gradients so far (including those
    of this operation), and temporaries."""

    at: str
    saved: Size
    gradients: Size
    temporary: Size

    @property
    def total(self) -> Size:
        """Total bytes."""
        return self.saved + self.gradients + self.temporary


class Inside:
    """Bytes inside any layer of one group. `gradients`: bytes by operation."""

    def __init__(self, step: TrainingStep, group: LayerGroup, graph: LayerGraph, gradients: Mapping[str, Size]) -> None:
        self.step, self.group, self.graph = step, group, graph
        self.bytes, self.made = step.bytes_in(group), gradients
        self.recomputes = step.recompute and bool(group.numbers)
        self.input = self.bytes.of([step.layer_input(group)]) if self.recomputes else 0
        self.saved = self.bytes.of(step.saved_in(group))
        self.gradients = sum(gradients.get(name, 0) for name in graph.order)
        self.first_index = {name: index for index, name in reversed([*enumerate(graph.order)])}
        there = frozenset() if self.recomputes else {each.path for each in graph.saved}
        self.casts = self.bytes.of(each.copy for each in graph.casts if each.saved not in there)

    @cached_property
    def saved_at(self) -> list[Size]:
        """Bytes saved at each operation, by its index, in a recomputed layer or part of it while it is recomputed."""
        index, graph = self.first_index, self.graph
        own = self.step.layer_input(self.group).path if self.recomputes else ""
        saved = [self.input + size for size in self._needed_up_to(each for each in graph.saved if each.path != own)]
        for part in graph.recomputed_parts:  # from the last operation of a part on
            names, end = frozenset(part), max(index[name] for name in part if name in index)
            recomputed = self._needed_up_to(each for each in graph.recomputed if not names.isdisjoint(each.saved_for))
            saved = [size + (recomputed[at] if at <= end else 0) for at, size in enumerate(saved)]
        return saved

    @cached_property
    def forward(self) -> list[Operation]:
        """The forward operations of one layer that can be the peak, without gradients."""
        there = *self.graph.saved, *self.graph.recomputed
        return [
            Operation(
                each.at, self.saved_at[self.first_index[each.at]], 0, self.bytes.of(self.graph.alive(each, there))
            )
            for each in self.graph.forward
        ]

    @cached_property
    def operations(self) -> list[Operation]:
        """The backward operations of one layer, and forward ones that it recomputes."""
        index, graph, saved = self.first_index, self.graph, self.saved_at
        if self.step.accumulates and self.group.shared is None:
            # Each is added to the earlier gradient and freed, if no other layer adds to it.
            made = [self.made.get(of_weight(name), 0) for name in graph.order]
        else:
            made = [*accumulate(self.made.get(name, 0) for name in reversed(graph.order))][::-1]
        found = [
            Operation(each.at, saved[index[each.at]], made[index[each.at]], self.bytes.of(each.temporary))
            for each in graph.backward
        ]
        if self.recomputes:
            return [*found, *self.forward]
        again = {name for part in graph.recomputed_parts for name in part}
        found += (each._replace(gradients=made[index[each.at]]) for each in self.forward if each.at in again)
        return found

    @cached_property
    def fullest(self) -> Operation:
        """The backward operation with the most bytes."""
        return max(self.operations, key=lambda one: int(one.total))

    def operations_with(self, there: Callable[[int], bool], *, saved: Size = 0, temporary: Size = 0) -> list[Operation]:
        """The same with additional bytes at some operations, by index."""
        return [
            each._replace(saved=each.saved + saved, temporary=each.temporary + temporary)
            if there(self.first_index[each.at])
            else each
            for each in self.operations
        ]

    @cached_property
    def last_sublayer(self) -> int:
        """Index of the first operation of the last sublayer, its norm."""
        names = [sublayer(name) for name in self.graph.order]
        return names.index(names[-1])

    def _needed_up_to(self, tensors: Iterable[SavedTensor]) -> list[Size]:
        """Bytes of tensors needed by an operation or an earlier one, by index of the operation."""
        tensors = list(tensors)
        sizes: list[Size] = [0] * len(self.graph.order)
        for each, bytes_ in zip(tensors, self.bytes.each(tensors), strict=True):
            first = min((self.first_index[name] for name in each.saved_for if name in self.first_index), default=None)
            if first is not None:
                sizes[first] += bytes_
        return [*accumulate(sizes)]


class Place(NamedTuple):
    """A layer in the model, or the part before or after the layers."""

    name: str
    inside: Inside
    number: int | None = None
    encoder: bool = False


class MemoryTimeline:
    """The phases of a step. Places are in forward order: those of an encoder come before those of its decoder.

    A phase has the bytes of its largest operation; with `every_operation`, each operation is a phase, so that each is a
    polynomial in batch and context.
    """

    def __init__(self, step: TrainingStep, *, every_operation: bool = False) -> None:
        self.step, self.every_operation = step, every_operation
        graph = step.graph
        gradients, self.added = gradients_of(step)
        inside = [_inside(step, group, made) for group, made in zip(graph.groups, gradients, strict=True)]
        self.places = [*_places(inside[: len(graph.encoder_layers)], encoder=True)]
        self.places += _places(inside[len(graph.encoder_layers) :], encoder=False)
        self.last = max(nth for nth, place in enumerate(self.places) if place.number is not None)
        saved = [place.inside.saved for place in self.places]
        layers = () if step.shards is None else zip(graph.groups, step.shards.layers, strict=True)
        self.shards_in = {id(group): shard for group, shard in layers}
        made = [self.left(place) for place in self.places]
        self.saved_before = self.on_device([*accumulate(saved, initial=0)])  # by index; the last one is the sum
        self.made_after = [*accumulate(made[:0:-1], initial=0)][::-1]  # by index; without that of the place itself
        self.gradients = sum(made) + (0 if self.added else step.other_rows)
        before = step.bytes_in(graph.before)
        self.stream = step.residual_bytes
        self.embedded = before.of([Transient("B T D", step.stream)])  # gathered under sequence parallelism
        self.source = before.of([Transient("B I D", step.stream)]) if graph.encoder_layers else 0
        self.loss = role_bytes(graph.loss, step.stored)
        self.logits = step.logits_bytes if step.keeps_logits else 0
        batch = {
            each.path: before.of([each]) for group in graph.groups for each in group.graph.saved if each.path in BATCH
        }
        self.labels = batch.get(LABELS, 0)
        self.batch = sum(batch.values())
        self.waits = max(self.added.values(), default=0)
        self.rotary = 0 if step.recomputes else step.rotary_bytes
        self.arguments = step.argument_bytes
        self.accumulated = {each.at: before.of([each.gradient]) for each in graph.accumulated}
        self.in_forward = before.of(graph.live_in_forward)
        self.always = self.arguments + 2 * self.loss
        order = graph.before.graph.order  # the class adds position embeddings to embeddings that stay alive
        self.adds_positions = "pos_embed.add" in order and not any("norm" in name for name in order)
        self.weights = step.weights

    def phase(
        self, name: str, operation: str, gradients: Size, saved: Size, temporary: Size, gathered: Size | None = None
    ) -> Phase:
        """A phase, with the bytes that every phase has. `gathered`: if more than the weights outside the layers is
        gathered."""
        step, stage = self.step, self.step.stage
        gradients += self.gradients if step.accumulates else 0
        if step.shards is not None and step.shards.accumulates:
            gradients += step.sharded_gradients
        temporary += self.logits + step.buckets
        if stage is not None:
            gradients, saved = gradients + stage.gradients, saved + stage.saved
            temporary += stage.buffers + stage.passed_on
        gathered = self.gathered(None) if gathered is None else gathered
        return Phase(name, operation, self.weights, step.optimizer.state, gradients, saved, temporary, gathered)

    # Weights sharded by FSDP or ZeRO.

    def gathered(self, nth: int | None) -> Size:
        """Bytes of gathered parameters in the backward pass of a place: its own, those of the previous layer, which
        FSDP prefetches, and those outside the layers. A pipeline stage gathers all its weights once."""
        shards = self.step.shards
        if shards is None or not shards.gathers:
            return 0
        root = self.step.compute.bytes(shards.ranks * shards.root)
        if self.step.stage is not None:
            return root + sum(self.unit(place) for place in self.places)
        if nth is None:
            return root
        before = next((place for place in reversed(self.places[:nth]) if place.number is not None), None)
        return root + self.unit(self.places[nth]) + self.unit(before)

    def unit(self, place: Place | None) -> Size:
        """Bytes of a layer's weights on all ranks; 0 outside the layers."""
        shards = self.step.shards
        if shards is None or not shards.gathers or place is None or place.number is None:
            return 0
        layer, compute = self.shards_in[id(place.inside.group)], self.step.compute
        gathers_experts = shards.expert_ranks > 1 or shards.stored != compute  # otherwise they are read in place
        experts = shards.expert_ranks * layer.experts if gathers_experts else 0
        return compute.bytes(shards.ranks * layer.elements + experts) + shards.ranks * layer.adapters

    def scattered(self, nth: int) -> Size:
        """Bytes of the gradients of the next layer, which are reduce-scattered in the backward pass of a place."""
        after = next((place for place in self.places[nth + 1 :] if place.number is not None), None)
        if after is None or self.step.shards is None or self.step.stage is not None:
            return 0
        if self.step.adapters:
            return self.step.shards.ranks * self.shards_in[id(after.inside.group)].adapters
        return self.unit(after)

    def left(self, place: Place) -> Size:
        """Bytes of the gradients that stay after the backward pass of a place: all of them, or a layer's shards."""
        shards = self.step.shards
        if shards is None or place.number is None or (self.step.stage is not None and shards.gathers):
            return place.inside.gradients
        layer, compute = self.shards_in[id(place.inside.group)], self.step.compute
        shard = layer.adapters if self.step.adapters else shards.stored.bytes(layer.elements + layer.experts)
        reduced: Size = 0  # what replicas reduce stays to the end if it is cast or added to earlier gradients
        if shards.replicated and shards.gathers and (shards.accumulates or shards.stored != compute):
            reduced = 0 if self.step.adapters else compute.bytes(layer.elements)
        return reduced + (0 if shards.accumulates else shard)

    def phases(self) -> Iterator[Phase]:
        """All phases that can be the peak, in the order of the step."""
        yield from self.forward()
        yield from self.loss_and_head()
        ends = self.ends()
        for nth, place in reversed([*enumerate(self.places)][:-1]):
            if place.number is not None:
                yield from self.layer(nth, place) if nth in ends else ()
            elif place.name.endswith("embedding"):
                yield from self.embedding(nth, place)
            else:
                yield from self._backward(nth, place.inside.operations)
        yield self.update()

    def on_device(self, saved_before: list[Size]) -> list[Size]:
        """Bytes saved before each place, without layer inputs that are offloaded: the device has those of the last two
        layers, or, in the backward pass of a layer, its own and that of the previous layer."""
        if not self.step.offloads_inputs:
            return saved_before
        inputs = [place.inside.input for place in self.places]
        stay = [INPUTS_ON_DEVICE if place.number is None else INPUTS_ON_DEVICE - 1 for place in self.places]

        def on_host(nth: int, staying: int) -> Size:
            return sum([size for size in inputs[:nth] if size][:-staying])

        staying = enumerate([*stay, INPUTS_ON_DEVICE])
        return [saved - on_host(*at) for saved, at in zip(saved_before, staying, strict=True)]

    def ends(self) -> set[int]:
        """Places of the first, the second and the last layer of each kind, and of the layer with the most other bytes,
        which differs only if kinds alternate. Under FSDP also the next to last, with the most gathered and scattered
        bytes."""
        alike: dict[int, list[int]] = {}
        for nth, place in enumerate(self.places):
            alike.setdefault(id(place.inside), []).append(nth)
        last = 1 if self.step.shards is None else 2
        found = {nth for each in alike.values() for nth in (*each[:2], *each[-last:])}
        if not self.every_operation:
            there = [saved + made for saved, made in zip(self.saved_before, self.made_after, strict=False)]
            found |= {max(each, key=there.__getitem__) for each in alike.values()}
        return found

    def forward(self) -> Iterator[Phase]:
        """The first layer while FSDP gathers it into a buffer and copies from it; the last layer; the end of the
        forward pass; under autocast, the loss while the copies of all weights are alive."""
        shards = self.step.shards
        if shards is not None and shards.gathers and self.step.stage is None:
            first = next(place for place in self.places if place.number is not None)
            reads = self.source if first.encoder else self.stream
            temporary = reads + self.arguments + self.in_forward
            gathered = 2 * (self.gathered(None) + self.unit(first))
            yield self.phase("first layer, forward", "all-gather", 0, self.saved_before[1], temporary, gathered)
        place, step = self.places[self.last], self.step
        inside, first_layer = place.inside, [each for each in self.places if each.encoder == place.encoder][1:2]
        for each in inside.forward if self.last >= 0 else ():
            ends = {} if step.recompute else {one.number: one.inside for one in (*first_layer, place)}
            unsaved = sum(LAYER_INPUT not in {one.path for one in layer.graph.saved} for layer in ends.values())
            unsaved += not step.recompute and self.adds_positions
            temporary = each.temporary + unsaved * self.stream  # the embeddings, and the input of the layer
            temporary += (self.arguments or inside.bytes.of(step.graph.arguments)) + self.in_forward
            temporary += sum(place.inside.casts for place in self.places)
            saved = self.saved_before[self.last] + each.saved
            gathered = self.gathered(None) + (self.unit(place) if step.stage is None else 0)  # else it is in the stage
            yield self.phase(f"{place.name}, forward", each.at, 0, saved, temporary, gathered)
        everything = self.saved_before[-1]
        yield self.phase(FORWARD_END, "", 0, everything, self.arguments + self.loss)
        in_loss = self.step.graph.loss_forward
        if in_loss:
            casts = sum(place.inside.casts for place in self.places)
            temporary = self.step.bytes_in(self.step.graph.after).of(in_loss) + casts + self.arguments + self.in_forward
            temporary -= self.logits  # the loss reads them
            yield self.phase("loss, forward", CHOOSE, 0, everything, temporary)

    def loss_and_head(self) -> Iterator[Phase]:
        """The backward pass of the loss, and of the head with the norm before it."""
        found = self.places[-1].inside.operations
        last = max((nth for nth, each in enumerate(found) if each.at.startswith("loss")), default=None)
        if last is None:
            return  # they are in another pipeline stage
        for name, each in ((LOSS, found[last : last + 1]), ("head, backward", found[:last])):
            yield from self._backward(len(self.places) - 1, each, name=name)

    def layer(self, nth: int, place: Place) -> Iterator[Phase]:
        """The backward pass of one layer."""
        found, inside = place.inside.operations, place.inside
        if nth == self.last and self.accumulated:  # it runs first, and allocates the gradient to which all others add
            first = min(inside.first_index[at] for at in self.accumulated)
            found = inside.operations_with(lambda at: at < first, temporary=sum(self.accumulated.values()))
        elif nth == self.last and self.step.stage is not None and self.step.stage.receives:
            # The gradient of its result is in a buffer until another one replaces it.
            first = inside.last_sublayer
            found = inside.operations_with(lambda at: at >= first, temporary=-self.stream)
        elif self.places[nth - 1].number is None and self.rotary:  # the last layer that needs cos and sin
            first = min((at for name, at in inside.first_index.items() if name.endswith("rotary")), default=0)
            found = inside.operations_with(lambda at: at < first, saved=-self.rotary)
        temporary = (self.source if place.encoder else self.stream) - self.masks_of_later_layers(nth)
        for phase in self._backward(nth, found, temporary):
            yield phase._replace(layer=place.number)

    def masks_of_later_layers(self, nth: int) -> Size:
        """Bytes of masks among the arguments that no layer up to a place reads: those for windows, or without."""
        kinds = {"W" in place.inside.group.axes for place in self.places[: nth + 1] if place.number is not None}
        masks = (each for each in self.step.graph.arguments if each.axes == "B T S" and self.arguments)
        gone = (each._replace(times=each.times - len(kinds)) for each in masks if each.times != 1)
        return self.step.bytes_in(self.step.graph.before).of(gone)

    def embedding(self, nth: int, place: Place) -> Iterator[Phase]:
        """The backward pass of the part before the layers."""
        found = []
        for each in place.inside.operations:
            # computed in addition to the embedding's gradient, then their sum in addition to both
            added = self.added.get(each.at, 0)
            reads = self.source if place.encoder else self.embedded
            # The rank's own rows of a gradient of all rows are copied before they are added.
            sums = added * (2 if self.step.other_rows else 1)
            temporary = each.temporary + added + max(reads, sums) - self.arguments + self.step.other_rows
            found.append(each._replace(temporary=temporary))
        yield from self._backward(nth, found)

    def update(self) -> Phase:
        """The optimizer's step."""
        step, stage = self.step, self.step.stage
        gradients = self.gradients if step.shards is None else step.sharded_gradients
        if stage is not None:
            gradients += stage.weights
        saved, temporary = (self.batch, 0) if stage is None else (0, stage.buffers)
        temporary += step.optimizer.update + step.buckets + (self.logits if stage is None else 0)
        return Phase("optimizer step", "", self.weights, step.optimizer.state, gradients, saved, temporary)

    def _backward(self, nth: int, found: list[Operation], temporary: Size = 0, name: str = "") -> Iterator[Phase]:
        """The backward pass of a place at its largest operation."""
        place, made, saved = self.places[nth], self.made_after[nth], self.saved_before[nth]
        if not self.every_operation and found:
            inside = place.inside
            found = [inside.fullest if found is inside.operations else max(found, key=lambda one: int(one.total))]
        if self.step.accumulates:  # except a tied head's, which waits for that of the embedding
            made = self.waits if nth < len(self.places) - 1 else 0
            if place.inside.group.shared is not None and nth < self.last:
                made += self.places[self.last].inside.gradients
        if place.encoder:
            saved += self.labels
        elif nth < self.last:
            temporary += sum(self.accumulated.values())
        temporary += self.always + self.scattered(nth)
        for one in found:
            parts = made + one.gradients, saved + one.saved, temporary + one.temporary, self.gathered(nth)
            yield self.phase(name or f"{place.name}, backward", one.at, *parts)


def phases(step: TrainingStep) -> list[Phase]:
    """The phases of a step that can be its peak, in order."""
    return [*MemoryTimeline(step).phases()]


def _inside(step: TrainingStep, group: LayerGroup, made: Mapping[str, Size]) -> dict[int, Inside]:
    """The bytes inside the layers of each group, by layer number; -1 outside the layers."""
    if group.shared is None:
        return dict.fromkeys(group.numbers or (-1,), Inside(step, group, group.graph, made))
    # Gradients of autocast's copies are added up in 16 bits, and cast after the first layer has added its own.
    copies = {each.path.removesuffix("_cast") for each in step.graph.before.graph.saved}
    cast = {name: size - size * step.compute.bits // step.stored.bits for name, size in made.items() if name in copies}
    first, last = group.numbers[0], group.numbers[-1]
    found = dict.fromkeys(group.numbers, Inside(step, group, group.shared, {}))
    sums = {name: size - cast.get(name, 0) for name, size in made.items()}
    return {**found, first: Inside(step, group, group.shared, cast), last: Inside(step, group, group.graph, sums)}


def _places(inside: Sequence[dict[int, Inside]], *, encoder: bool) -> Iterator[Place]:
    """The places of one side: before its layers, each layer, and after them."""
    if not inside:
        return
    side = "encoder, " if encoder else ""
    before, *layers, after = inside
    yield Place(f"{side}embedding", before[-1], encoder=encoder)
    for number, each in sorted(
        ((number, one) for of_group in layers for number, one in of_group.items()), key=itemgetter(0)
    ):
        yield Place(f"{side}layer {number:,}", each, number, encoder)
    yield Place(f"{side}final norm", after[-1], encoder=encoder)


class Gradients(NamedTuple):
    """Bytes of the gradients that each operation computes in one layer of each group. `added`: those that are added to
    an existing gradient of an embedding."""

    made: list[dict[str, Size]]
    added: dict[str, Size]


def gradients_of(step: TrainingStep) -> Gradients:
    """Gradients of a step by operation."""
    groups = step.graph.groups
    if step.adapters:
        on = [{*group.numbers[:1]} for group in groups]
        return Gradients([{a.path: a.bytes for a in step.adapters if numbers & {*a.numbers}} for numbers in on], {})
    found: list[dict[str, Size]] = [{} for _ in groups]
    added, known = dict[str, Size](), dict[str, Size]()
    for nth in reversed(range(len(groups))):
        made = dict[str, Size]()
        for name, parameter, elements in trained(step.ledger.groups[nth]):
            bytes_ = step.stored.bytes(elements)
            whose = added if parameter in known else made
            whose[name] = whose.get(name, 0) + bytes_
            if not paths.repeated(parameter):
                known[parameter] = bytes_
        found[nth] = made
        source = paths.in_encoder(EMBED)
        if source in groups[nth].graph.order and source not in made:  # the decoder's embedding
            added[source] = known[f"{EMBED}.weight"]
    return Gradients(found, added)


def trained(group: Group) -> Iterator[tuple[str, str, Size]]:
    """Parameters of one layer of a group: the operation that reads each one, its path, and its elements."""
    for name, parameter in group.cached_lines.once(trained, lambda: [*_trained(group.cached_lines)]):
        yield name, parameter.path, size(group.axes, parameter.axes)


def _trained(lines: Sequence[Line]) -> Iterator[tuple[str, Parameter]]:
    every = {line.path for line in lines}
    for line in lines:
        if isinstance(line, Matmul | Pointwise | Table):
            name = line.path if isinstance(line, Table) else f"{line.path}.weight"
            gate = f"{line.path.removesuffix('.up_proj')}.gate_proj"
            if isinstance(line, Matmul) and line.expert_axis is not None and gate in every:  # one weight of the class
                name = f"{gate}.weight"
            for parameter in line.parameters():
                table = parameter.table
                if not is_routing_bias(parameter.path) and (table is None or table.trained):
                    yield name, parameter
