"""One rank of a pipeline that really sends: `python -m tests.helpers.gloo_stages RANK RANKS STORE JOB`."""

import json
from collections import Counter
from typing import Any

from tests.helpers.fake_ranks import built
from tests.helpers.gloo import run_as_rank
from tests.helpers.lazy import lazy
from tests.helpers.torch_stages import blocks_of, schedule_of
from tfacct.parallel.mesh import Mesh
from tfacct.parallel.pipeline import stages

torch, dist, pipelining = lazy("torch"), lazy("torch.distributed"), lazy("torch.distributed.pipelining")
schedules = lazy("torch.distributed.pipelining.schedules")


def main(rank: int, job: dict[str, Any]) -> None:
    """Run a step of torch's schedule and of the whole model; print the bytes sent, and the difference of gradients."""
    mesh, config = Mesh(**job["mesh"]), job["config"]
    torch.manual_seed(0)
    whole = built(config)
    torch.manual_seed(0)
    model = built(config)
    ids = torch.randint(0, config["vocab_size"], (job["batch"], job["tokens"]))
    ((own,),) = [stages(config["num_hidden_layers"], mesh)[rank]]

    def loss(made: Any, _: Any) -> Any:
        return made.square().mean()

    whole_loss = loss(whole(input_ids=ids, use_cache=False).logits, None)
    whole_loss.backward()

    sent: Counter[tuple[str, int]] = Counter()
    real = schedules._batch_p2p

    def watched(ops: Any, desc: Any = None) -> Any:
        for one in ops:
            if one.op is dist.isend and one.tensor.numel() > 1:  # one number says that neighbours are there
                when = "forward" if one.peer == rank + 1 else "backward"
                sent[when, one.tensor.numel() * one.tensor.element_size()] += 1
        return real(ops, desc)

    schedules._batch_p2p = watched
    part = blocks_of(model, own, job["tokens"])
    each = job["batch"] // mesh.microbatches
    stream = torch.zeros(each, job["tokens"], config["hidden_size"], requires_grad=True)
    logits = torch.zeros(each, job["tokens"], config["vocab_size"], requires_grad=True)
    stage = pipelining.PipelineStage(
        part,
        rank,
        mesh.pp,
        torch.device("cpu"),
        (ids[:each] if own.first else stream,),
        (logits if own.last else stream,),
    )
    schedule = schedule_of(mesh, [stage], loss)
    losses: list[Any] = []
    schedule.step(*((ids,) if own.first else ()), target=ids if own.last else None, losses=losses)
    slopes = {name: weight.grad for name, weight in whole.named_parameters()}
    mine = {id(weight) for weight in part.parameters()}
    worst = 0.0
    for name, weight in model.named_parameters():
        if id(weight) in mine:
            worst = max(worst, float((weight.grad - slopes[name]).abs().max() / slopes[name].abs().max()))
    apart = abs(float(sum(losses) / len(losses) - whole_loss) / float(whole_loss)) if own.last else 0.0
    print(json.dumps({"sent": [[*key, times] for key, times in sent.items()], "gradients": worst, "loss": apart}))


if __name__ == "__main__":
    run_as_rank(main)
