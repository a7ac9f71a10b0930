"""One rank of several that send, for test_gloo: `python -m tests.helpers.gloo_ranks RANK RANKS STORE JOB`."""

import json
from typing import Any

from tests.helpers.fake_expert_ranks import Counted, balanced, planned, watched
from tests.helpers.fake_ranks import built
from tests.helpers.gloo import run_as_rank
from tests.helpers.lazy import lazy
from tfacct.parallel.mesh import Mesh

torch = lazy("torch")


def main(rank: int, job: dict[str, Any]) -> None:
    """Run a step of the sharded and of the whole model; print the bytes sent, and the difference of the results."""
    mesh = Mesh(**job["mesh"])
    torch.manual_seed(0)
    whole = built(job["config"])
    torch.manual_seed(0)
    model = built(job["config"])
    for one in (whole, model):
        if "num_local_experts" in job["config"]:
            one.set_experts_implementation("eager")
            balanced(one)
    torch.manual_seed(rank // mesh.tp)  # ranks of tp have one batch
    ids = torch.randint(0, job["config"]["vocab_size"], (job["batch"], job["tokens"]))
    at = torch.arange(job["tokens"])[None]
    expected = whole(input_ids=ids, position_ids=at).logits
    expected.square().mean().backward()

    planned(model, mesh)
    found: Counted = {}
    with watched(found, "forward"):
        logits = model(input_ids=ids, position_ids=at).logits
    with watched(found, "backward"):
        logits.square().mean().backward()
    apart = (logits - expected).abs().max() / expected.abs().max()
    slopes = {name: weight.grad for name, weight in whole.named_parameters()}
    worst = 0.0
    for name, weight in model.named_parameters() if mesh.fsdp == 1 else ():
        own = weight.grad.full_tensor() if hasattr(weight.grad, "full_tensor") else weight.grad
        if own.shape == slopes[name].shape:
            worst = max(worst, float((own - slopes[name]).abs().max() / slopes[name].abs().max()))
    if rank == 0:
        counts = [[when, kind, sorted(sizes.items())] for (when, kind), sizes in found.items()]
        print(json.dumps({"counts": counts, "logits": float(apart), "gradients": worst}))


if __name__ == "__main__":
    run_as_rank(main)
