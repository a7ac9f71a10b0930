"""A rank of a pipeline as torch's schedules run it: a class's blocks in stages, on meta, its neighbours not there."""

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from tests.helpers.fake_ranks import watched
from tests.helpers.lazy import lazy
from tests.helpers.torch_ranks import decoder, storages
from tfacct.parallel.mesh import Mesh
from tfacct.parallel.pipeline import Stage, stages

reference = lazy("tfacct.reference.ranks")
cuda, tracker, torch = lazy("tfacct.meta.cuda"), lazy("tfacct.meta.tracker"), lazy("torch")
device_mesh, fsdp = lazy("torch.distributed.device_mesh"), lazy("torch.distributed.fsdp")
pipelining, torchs = lazy("torch.distributed.pipelining"), lazy("torch.distributed.pipelining.schedules")
nn, masking_utils, meta_model = lazy("torch.nn"), lazy("transformers.masking_utils"), lazy("tfacct.meta.model")


class Ran(NamedTuple):
    """A rank's stages, its batch, and what runs a step of all its microbatches."""

    parts: list[Any]
    batch: Any
    step: Callable[[], None]

    def tensors(self) -> Iterator[Any]:
        """Parameters, buffers and what the stages receive into."""
        for part in self.parts:
            yield from part.submod.parameters()
            yield from part.submod.buffers()
            for received in (*part.args_recv_info.values(), *part.grad_recv_info.values()):
                yield from (one.buffer for one in received if one.buffer is not None)


def blocks_of(model: Any, stage: Stage, tokens: int) -> Any:
    """A stage's layers of the class, with the rotary embedding and the mask that each stage computes."""

    class Part(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = model.model.embed_tokens if stage.first else None
            self.layers = nn.ModuleList(model.model.layers[number] for number in stage.blocks)
            self.angles, self.norm = model.model.rotary_emb, model.model.norm if stage.last else None
            self.head = model.lm_head if stage.last else None

        def forward(self, given: Any) -> Any:
            stream = given if self.embed is None else self.embed(given)
            places = torch.arange(tokens, device=given.device)[None]
            angles = self.angles(stream, places)
            mask = masking_utils.create_causal_mask(model.config, stream, None, None, position_ids=places)
            given = {"attention_mask": mask, "position_ids": places, "position_embeddings": angles}
            for layer in self.layers:
                stream = layer(stream, **given, use_cache=False)
            return stream if self.head is None else self.head(self.norm(stream))

    return Part()


def alone(*what: Any, **how: Any) -> Any:
    """A stage without neighbours, whose agreement is assumed."""

    class Agreed(pipelining.PipelineStage):
        def _warmup_backward_result(self, received_result: Any = None) -> Any:  # noqa: ARG002
            return torch.ones(1, dtype=torch.int32)

    return Agreed(*what, **how)


def schedule_of(mesh: Mesh, parts: Sequence[Any], loss: Any, **how: Any) -> Any:
    """torch's schedule of a rank's stages."""
    if mesh.schedule == "interleaved":
        return pipelining.ScheduleInterleaved1F1B(parts, mesh.microbatches, loss_fn=loss, **how)
    kind = pipelining.Schedule1F1B if mesh.schedule == "1f1b" else pipelining.ScheduleGPipe
    return kind(*parts, mesh.microbatches, loss_fn=loss, **how)


@contextmanager
def in_stages(
    config: dict[str, Any], mesh: Mesh, rank: int, batch: int, tokens: int, recipe: dict[str, Any]
) -> Iterator[Ran]:
    """A rank under torch's schedule, of a class in bf16. `recipe`: its `attention`, and `checkpoint`."""
    model = meta_model.build_model(
        config, recipe.get("attention", "sdpa"), "bf16", recompute=recipe.get("recompute", "none")
    )
    recipe.get("lend", lambda _: None)(model)
    every, each = stages(config["num_hidden_layers"], mesh), batch // mesh.microbatches
    like = {"dtype": torch.bfloat16, "device": "meta", "requires_grad": True}
    stream = torch.zeros(each, tokens, config["hidden_size"], **like)
    logits = torch.zeros(each, tokens, config["vocab_size"], **like)
    ids = torch.zeros(batch, tokens, dtype=torch.long, device="meta")

    def loss(made: Any, target: Any) -> Any:
        return model.loss_function(logits=made, labels=target, vocab_size=config["vocab_size"])

    with reference.fake_ranks(mesh.pp, rank), pytest.MonkeyPatch.context() as patched:
        patched.setattr(torchs, "_batch_p2p", lambda ops, desc=None: [])  # noqa: ARG005
        parts = [
            alone(
                blocks_of(model, stage, tokens),
                rank + number * mesh.pp,
                mesh.pp * mesh.chunks,
                torch.device("meta"),
                (ids[:each] if stage.first else stream,),
                (logits if stage.last else stream,),
            )
            for number, stage in enumerate(every[rank])
        ]
        schedule = schedule_of(mesh, parts, loss, scale_grads=False)

        def step() -> None:
            whole = (ids,) if rank == 0 else ()
            with cuda.cuda_kernels():
                schedule.step(*whole, target=ids if rank == mesh.pp - 1 else None, return_outputs=False)

        yield Ran(parts, ids, step)


def peak_in_flight(
    config: dict[str, Any], mesh: Mesh, rank: int, batch: int, tokens: int, recipe: dict[str, Any]
) -> int:
    """The most bytes alive on a rank in its second step, up to the last gradient. With `accumulate` in the recipe the
    gradients of the first one are there."""
    with in_stages(config, mesh, rank, batch, tokens, recipe) as ran:
        ran.step()
        own = [weight for part in ran.parts for weight in part.submod.parameters()]
        if not recipe.get("gradient_accumulation", 1) > 1:
            for weight in own:
                weight.grad = None
        alive = tracker.LiveBytes()
        for tensor in (*ran.tensors(), *(weight.grad for weight in own if weight.grad is not None)):
            alive.add(tensor)
        if rank in (0, mesh.pp - 1):
            alive.add(ran.batch)
        with alive:
            ran.step()
    return alive.peak.bytes


def peak_of_shared_stage(
    config: dict[str, Any], mesh: Mesh, rank: int, batch: int, tokens: int, *, recompute: bool = False
) -> tuple[int, dict[str, Counter[int]]]:
    """The most bytes on a rank of `fsdp` in a stage's second step, up to the scatter of its gradients, on real tensors;
    and what it gathers and scatters in its first."""
    (stage,) = stages(config["num_hidden_layers"], mesh)[rank]
    model, each = decoder(config, recompute=recompute), batch // mesh.microbatches
    like: dict[str, Any] = {"dtype": torch.bfloat16, "requires_grad": True}
    stream = torch.zeros(each, tokens, config["hidden_size"], **like)
    logits = torch.zeros(each, tokens, config["vocab_size"], **like)
    ids, sent = torch.zeros(batch, tokens, dtype=torch.long), dict[Any, Counter[int]]()

    def loss(made: Any, target: Any) -> Any:
        return model.loss_function(logits=made, labels=target, vocab_size=config["vocab_size"])

    with (
        reference.fake_ranks(mesh.ranks, rank * mesh.fsdp),
        pytest.MonkeyPatch.context() as patched,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        patched.setattr(torchs, "_batch_p2p", lambda ops, desc=None: [])  # noqa: ARG005
        ranks = device_mesh.init_device_mesh("cpu", (mesh.pp, mesh.fsdp), mesh_dim_names=("pp", "fsdp"))
        part = blocks_of(model, stage, tokens)
        for module in (*part.layers, part):
            fsdp.fully_shard(module, mesh=ranks["fsdp"], reshard_after_forward=False)
        given, made = (ids[:each] if stage.first else stream,), (logits if stage.last else stream,)
        own = alone(part, rank, mesh.pp, torch.device("cpu"), given, made, group=ranks["pp"].get_group())
        schedule = schedule_of(mesh, [own], loss, scale_grads=False)

        def step() -> None:
            whole = (ids,) if stage.first else ()
            schedule.step(*whole, target=ids if stage.last else None, return_outputs=False)

        with watched(sent, "step"):
            step()
        received = (*own.args_recv_info.values(), *own.grad_recv_info.values())
        alive = storages()
        for weight in part.parameters():
            weight.grad = None
            alive.add(weight)
        for tensor in (*part.buffers(), *(one.buffer for each in received for one in each)):
            if tensor is not None:
                alive.add(tensor)
        if stage.first or stage.last:
            alive.add(ids)
        with alive:
            step()
    return alive.most, {kind: found for (_, kind), found in sent.items()}
