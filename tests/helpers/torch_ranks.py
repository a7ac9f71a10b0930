"""Memory of ranks of a parallel layout as torch runs them, in a process group that sends nothing."""

import warnings
import weakref
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import tfacct
from tests.helpers.fake_ranks import built, plan_of
from tests.helpers.lazy import lazy
from tfacct.parallel.mesh import Mesh

reference = lazy("tfacct.reference.ranks")
peft, cuda, tracker, torch = lazy("peft"), lazy("tfacct.meta.cuda"), lazy("tfacct.meta.tracker"), lazy("torch")
meta_lora, meta_model, _C = lazy("tfacct.meta.lora"), lazy("tfacct.meta.model"), lazy("torch._C")
fake_tensor = lazy("torch._subclasses.fake_tensor")
fsdp2_mem_tracker = lazy("torch.distributed._tools.fsdp2_mem_tracker")
device_mesh, fsdp = lazy("torch.distributed.device_mesh"), lazy("torch.distributed.fsdp")
tensor, parallel = lazy("torch.distributed.tensor"), lazy("torch.distributed.tensor.parallel")
_python_dispatch, _pytree = lazy("torch.utils._python_dispatch"), lazy("torch.utils._pytree")
COLUMNS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
MATMULS = (*COLUMNS, "o_proj", "down_proj")


def local(tensor: Any) -> Any:
    """A rank's part of a tensor."""
    return getattr(tensor, "_local_tensor", tensor)


def in_bf16(model: Any) -> Any:
    """A model whose frequencies stay in fp32, as where a checkpoint is loaded in bf16."""
    buffers = {name: buffer for name, buffer in model.named_buffers() if buffer.is_floating_point()}
    model = model.to(torch.bfloat16)
    for name, buffer in buffers.items():
        holder, _, last = name.rpartition(".")
        model.get_submodule(holder)._buffers[last] = buffer
    return model


def add_peft(model: Any, rank: int, *, fp32: bool) -> None:
    """Put peft's adapters on all linear layers of real weights."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = peft.LoraConfig(r=rank, target_modules=list(MATMULS))
        peft.get_peft_model(model, config, autocast_adapter_dtype=fp32).train()
        for layer in model.modules() if not fp32 else ():
            if isinstance(layer, peft.tuners.lora.LoraLayer):
                layer.to(torch.bfloat16)


def divide_peft(model: Any, ranks: Any) -> None:
    """Divide peft's adapters as peft does: of a matmul by columns the second matrix, by rows the first one."""
    plan: dict[str, Any] = {}
    for name, _ in model.named_modules():
        *_, matmul, which, leaf = ["", "", *name.split(".")]
        if leaf == "default" and (which, matmul in COLUMNS) in (("lora_A", False), ("lora_B", True)):
            plan[name] = parallel.ColwiseParallel() if which == "lora_B" else parallel.RowwiseParallel()
    parallel.parallelize_module(model, ranks, plan)


def peak_of_fsdp(
    model: Any,
    layers: Callable[[Any], Any],
    mesh: Mesh,
    batch: dict[str, Any],
    *,
    fp32_weights: bool = False,
    accumulates: bool = False,
) -> int:
    """The most bytes that torch's tracker sees of a second step without its update, on real tensors. `layers`: modules
    that FSDP gathers by themselves."""
    with reference.fake_ranks(mesh.ranks), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ranks = device_mesh.init_device_mesh("cpu", (mesh.dp, mesh.fsdp, mesh.tp), mesh_dim_names=("dp", "fsdp", "tp"))
        if mesh.tp > 1:
            parallel.parallelize_module(model, ranks["tp"], plan_of(model, mesh))
        policy = {"mp_policy": fsdp.MixedPrecisionPolicy(param_dtype=torch.bfloat16)} if fp32_weights else {}
        for module in (*layers(model), model):
            fsdp.fully_shard(module, mesh=ranks["dp", "fsdp"] if mesh.dp > 1 else ranks["fsdp"], **policy)
        seen = fsdp2_mem_tracker.FSDPMemTracker(model, None)
        seen.track_inputs(tuple(batch.values()))
        with parallel.loss_parallel(), seen:
            for first in (True, False):
                model(**batch).loss.backward()
                if not (first and accumulates):
                    model.zero_grad()
                if first:
                    seen.reset_mod_stats()
        return int(seen.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"])


def real_tokens(batch: int, tokens: int) -> dict[str, Any]:
    """A batch on a CPU."""
    ids = torch.zeros(batch, tokens, dtype=torch.long)
    return {"input_ids": ids, "labels": ids}


def decoder(config: dict[str, Any], *, fp32_weights: bool = False, recompute: bool = False) -> Any:
    """A decoder of real weights."""
    model = built(config) if fp32_weights else in_bf16(built(config))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if recompute:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model.train()


def live_bytes() -> Any:
    """A counter of live bytes on a rank after every operation on its own tensors."""

    class Alive(tracker.LiveBytes):
        def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if any(issubclass(kind, tensor.DTensor) for kind in types):
                return NotImplemented  # it runs first, and its tensors come here
            fakes = _C._get_dispatch_mode(_C._TorchDispatchModeKey.FAKE)
            if fakes is not None or any(issubclass(kind, fake_tensor.FakeTensor) for kind in types):
                return operator(*args, **(kwargs or {}))  # in which DTensor works shapes out: of no memory
            return super().__torch_dispatch__(operator, types, args, kwargs)

    return Alive()


def saved_and_peak(
    config: dict[str, Any],
    mesh: Mesh,
    batch: int,
    tokens: int,
    *,
    recompute: str = "none",
    accumulates: bool = False,
    lora: int = 0,
) -> tuple[int, int]:
    """Bytes that autograd saves on a rank of `tp` under torch's plan, each storage once, and the most that are alive up
    to the last gradient. On meta, as on CUDA. `lora`: the rank of peft's adapters, which peft divides."""
    found: dict[int, Any] = {}
    wraps = patch("torch.distributed._functional_collectives._maybe_wrap_tensor", lambda tensor: tensor)
    with reference.fake_ranks(mesh.tp), cuda.cuda_kernels(), parallel.loss_parallel(), wraps:
        model = meta_model.build_model(tfacct.load(config).loaded.of_class, "sdpa", "bf16", recompute=recompute)
        ranks = device_mesh.init_device_mesh("cpu", (mesh.tp,))
        parallel.parallelize_module(model, ranks, plan_of(model, mesh))
        if config["tie_word_embeddings"]:
            model.lm_head.weight = model.model.embed_tokens.weight
        if lora:
            meta_lora.add_adapters(model, lora, list(MATMULS))
            divide_peft(model, ranks)
        constants = {local(one).untyped_storage()._cdata for one in (*model.parameters(), *model.buffers())}

        def save(tensor: Any) -> Any:
            storage = local(tensor).untyped_storage()
            if storage._cdata not in constants:
                found[storage._cdata] = storage  # stays, or its address would be another's next
            return tensor

        ids = torch.zeros(batch, tokens, dtype=torch.long, device="meta")
        given = {"input_ids": ids, "labels": ids, "use_cache": False}
        if mesh.sp:  # a part of the tokens does not say where it is
            given["position_ids"] = torch.arange(tokens, device="meta")[None]
        with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
            model(**given).loss.backward()
        saved = sum(storage.nbytes() for storage in found.values())
        found.clear()
        if not accumulates:
            model.zero_grad()
        alive = live_bytes()
        gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
        for tensor in (*model.parameters(), *model.buffers(), *gradients, ids):
            alive.add(local(tensor))
        with alive:
            model(**given).loss.backward()
    return saved, alive.peak.bytes


def storages() -> Any:
    """A mode that sees bytes of all storages after every operation, as large as they are then: FSDP resizes them."""

    class Sizes(_python_dispatch.TorchDispatchMode):  # type: ignore[no-untyped-call]
        most = 0

        def __init__(self) -> None:
            super().__init__()
            self.seen: weakref.WeakSet[Any] = weakref.WeakSet()

        def add(self, tensor: Any) -> None:
            self.seen.add(local(tensor).untyped_storage())

        def __torch_dispatch__(self, operator: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = operator(*args, **(kwargs or {}))
            for leaf in _pytree.tree_leaves((args, kwargs, result)):
                if isinstance(leaf, torch.Tensor):
                    self.add(leaf)
            self.most = max(self.most, sum(storage.nbytes() for storage in list(self.seen)))
            return result

    return Sizes()
