"""Small configs that ranks and stages run, and their comparison with torch."""

from typing import Any

from tfacct import Model
from tfacct.base.errors import TfacctError
from tfacct.loading.model import LoadedModel
from tfacct.parallel.mesh import Mesh, check, padded_axes, replicated_heads
from tfacct.parallel.support import check_mesh

SIZES = {
    **{"hidden_size": 16, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 4, "intermediate_size": 24},
    **{"vocab_size": 40, "num_hidden_layers": 2, "max_position_embeddings": 64, "tie_word_embeddings": False},
}
LLAMA = {
    **{**SIZES, "model_type": "llama", "hidden_size": 24, "num_attention_heads": 4, "num_key_value_heads": 2},
    **{"head_dim": 6, "intermediate_size": 20, "vocab_size": 32},
}
SMALL = {
    **{**SIZES, "model_type": "llama", "hidden_size": 12, "num_attention_heads": 2, "num_key_value_heads": 1},
    **{"head_dim": 8, "intermediate_size": 20, "num_hidden_layers": 8, "tie_word_embeddings": True},
}
SOME = ("llama-3.1-70b", "gpt2", "mixtral-8x7b", "deepseek-v2-lite", "qwen3-30b-a3b", "pythia-70m", "gemma-2-9b")


def even(loaded: LoadedModel, mesh: Mesh) -> bool:
    """True if a mesh divides a model, and each of its axes evenly."""
    try:
        check_mesh(loaded, mesh)
        check(loaded.ledger, mesh, {})
    except TfacctError:
        return False
    return not replicated_heads(loaded.ledger, mesh) and not padded_axes(loaded.ledger, mesh)


def verify_shard(model: Model, mesh: dict[str, Any], *, plan: str | None = None, **step: Any) -> None:
    """Check that a rank of the class stores and sends what is counted."""
    found = model.verify(shard=True, **step, **mesh)
    assert found.agrees and found.rank_params == found.measured_rank_params, model.config
    assert plan in (None, found.plan)
    checks = [one["check"] for one in found.cross_checks]
    assert checks == ["parameters of rank 0", "calls of collectives", "bytes of their results"]
    assert found.cross_checks[1]["measured"] > 0 and all(line["equal"] for line in found.lines)
