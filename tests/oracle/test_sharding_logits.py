"""Logits and gradients on a mesh: torch's loss of sharded logits, and gradient sums in another dtype. Kind: oracle."""

import pytest

import tfacct
from tests.helpers.fake_expert_ranks import Counted, accounted, watched
from tests.helpers.fake_ranks import built, fake_ranks, sharded
from tests.helpers.lazy import lazy
from tests.helpers.rank_configs import LLAMA
from tfacct.ledger.workload import Workload
from tfacct.parallel.mesh import Mesh
from tfacct.parallel.rules import collectives

torch, device_mesh, fsdp = lazy("torch"), lazy("torch.distributed.device_mesh"), lazy("torch.distributed.fsdp")
parallel = lazy("torch.distributed.tensor.parallel")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_divided_loss_is_torchs(dtype: str) -> None:
    model, found = built(LLAMA).to(getattr(torch, dtype)), Counted()
    with fake_ranks(2):
        sharded(model, Mesh(tp=2))
        ids = torch.zeros(2, 5, dtype=torch.long)
        logits = model(input_ids=ids, position_ids=torch.arange(5)[None]).logits.float()
        with parallel.loss_parallel():
            with watched(found, "forward"):
                loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten())
            with watched(found, "backward"):
                loss.backward()
    loaded, bits = tfacct.load(LLAMA).loaded, 32 if dtype == "float32" else 16
    at = Workload(5, 5, 2).axes()
    lines = collectives(loaded.ledger, Mesh(tp=2), at, bits, train=True, after="loss")
    own = [one for one in lines if one.of == "logits"]
    assert [one.what for one in own] == ["loss.max", "loss.sum", "loss.target"]
    # 2 sequences of 5 tokens, in fp32 whatever the stream's dtype.
    assert found["forward", "all-reduce"] == {one.bytes: len(own) for one in own} == {2 * 5 * 4: 3}
    assert ("backward", "all-gather") not in found


def test_gradients_are_summed_in_another_dtype() -> None:
    model, found = built(LLAMA), Counted()
    with fake_ranks(2):
        ranks = device_mesh.init_device_mesh("cpu", (2,))
        policy = fsdp.MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for block in (*model.model.layers, model):
            fsdp.fully_shard(block, mesh=ranks, mp_policy=policy)
        ids = torch.zeros(1, 4, dtype=torch.long)
        with watched(found, "forward"):
            logits = model(input_ids=ids).logits
        with watched(found, "backward"):
            logits.sum().backward()
    asked = (LLAMA, Mesh(fsdp=2), 1, 4)
    assert accounted(*asked, train=True, bits=16, reduced=32) == found != accounted(*asked, train=True, bits=16)
