"""A rank of a pipeline as torch's schedules run it: a class's blocks in stages, on meta, its neighbours not there."""

import warnings
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import pytest

from tests.helpers.fake_ranks import Counted, watched
from tests.helpers.lazy import lazy
from tests.helpers.torch_ranks import decoder, storages
from tfacct.parallel.mesh import Mesh
from tfacct.parallel.pipeline import Stage, stages

reference = lazy("tfacct.reference.ranks")
cuda, tracker, torch = lazy("tfacct.meta.cuda"), lazy("tfacct.meta.tracker"), lazy("torch")
device_mesh, fsdp = lazy("torch.distributed.device_mesh"), lazy("torch.distributed.fsdp")
pipelining, torchs = lazy("torch.distributed.pipelining"), lazy("torch.distributed.pipelining.schedules")
nn, masking_utils, meta_model = lazy("torch.nn"), lazy("transformers.masking_utils"), lazy("tfacct.meta.model")


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


def peak_of_stages(
    config: dict[str, Any], mesh: Mesh, rank: int, batch: int, tokens: int, recipe: dict[str, Any]
) -> tuple[int, dict[str, Counter[int]]]:
    """The most bytes alive on a rank in its second step, up to the last gradient, with those of the first step where
    gradients accumulate; and what ranks of `fsdp` gather and scatter in the first. Those have real tensors, which FSDP
    resizes. `recipe`: its `attention`, `recompute` and `gradient_accumulation`, and what `lend`s adapters to the class.
    """
    shares, recompute = mesh.fsdp > 1, recipe.get("recompute", "none")
    if shares:
        model = decoder(config, recompute=recompute == "full")
    else:
        model = meta_model.build_model(config, recipe.get("attention", "sdpa"), "bf16", recompute=recompute)
    recipe.get("lend", lambda _: None)(model)
    own, each = stages(config["num_hidden_layers"], mesh)[rank], batch // mesh.microbatches
    device, first, last = torch.device("cpu" if shares else "meta"), rank == 0, rank == mesh.pp - 1
    like = {"dtype": torch.bfloat16, "device": device, "requires_grad": True}
    stream = torch.zeros(each, tokens, config["hidden_size"], **like)
    logits = torch.zeros(each, tokens, config["vocab_size"], **like)
    ids, sent, how = torch.zeros(batch, tokens, dtype=torch.long, device=device), Counted(), dict[str, Any]()

    def loss(made: Any, target: Any) -> Any:
        return model.loss_function(logits=made, labels=target, vocab_size=config["vocab_size"])

    with (
        reference.fake_ranks(mesh.ranks, rank * mesh.fsdp),
        pytest.MonkeyPatch.context() as patched,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        patched.setattr(torchs, "_batch_p2p", lambda ops, desc=None: [])  # noqa: ARG005
        parts = [blocks_of(model, stage, tokens) for stage in own]
        if shares:
            ranks = device_mesh.init_device_mesh("cpu", (mesh.pp, mesh.fsdp), mesh_dim_names=("pp", "fsdp"))
            how["group"] = ranks["pp"].get_group()
            for module in (one for part in parts for one in (*part.layers, part)):
                fsdp.fully_shard(module, mesh=ranks["fsdp"], reshard_after_forward=False)
        staged = [
            alone(
                part,
                rank + number * mesh.pp,
                mesh.pp * mesh.chunks,
                device,
                (ids[:each] if stage.first else stream,),
                (logits if stage.last else stream,),
                **how,
            )
            for number, (part, stage) in enumerate(zip(parts, own, strict=True))
        ]
        schedule = schedule_of(mesh, staged, loss, scale_grads=False)

        def step() -> None:
            with nullcontext() if shares else cuda.cuda_kernels():
                schedule.step(*((ids,) if first else ()), target=ids if last else None, return_outputs=False)

        with watched(sent, "step"):
            step()
        weights = [weight for part in parts for weight in part.parameters()]
        if recipe.get("gradient_accumulation", 1) == 1:
            for weight in weights:
                weight.grad = None
        buffers = [buffer for part in parts for buffer in part.buffers()]
        for part in staged:
            for received in (*part.args_recv_info.values(), *part.grad_recv_info.values()):
                buffers += [one.buffer for one in received]
        alive = storages() if shares else tracker.LiveBytes()
        for tensor in (*weights, *buffers, *(weight.grad for weight in weights), ids if first or last else None):
            if tensor is not None:
                alive.add(tensor)
        with alive:
            step()
    return alive.most if shares else alive.peak.bytes, {kind: found for (_, kind), found in sent.items()}
