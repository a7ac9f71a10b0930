"""Figures that no total shows change only with a reason: devices, context, window, rope and top-k of presets. Kind:
golden.
"""

import pytest

import tfacct
from tests.helpers import digests

RECORDED = digests.recorded()


def test_every_figure_is_the_recorded_one_and_has_a_reason() -> None:
    changed = [
        f"{kind[:-1]} {name}: {found}, recorded {RECORDED[kind].get(name, ['nothing'])[0]}"
        for kind, name, found in digests.current()
        if RECORDED[kind].get(name, [""])[0] != found
    ]
    message = 'a figure changed: check it against its source, then python -m tests.helpers.digests "where it was read"'
    assert not changed, "\n".join([message, *changed])
    names = {(kind, name) for kind, name, _ in digests.current()}
    assert {(kind, name) for kind, files in RECORDED.items() for name in files} == names
    assert all(len(reason.split()) > 1 for files in RECORDED.values() for _, reason in files.values())


ACTIVE = {
    **{"mixtral-8x7b": 12.9, "mixtral-8x22b": 39, "deepseek-v2": 21, "deepseek-v3": 37, "kimi-k2": 32},
    **{"qwen3-30b-a3b": 3.3, "qwen3-235b-a22b": 22, "qwen2-57b-a14b": 14, "qwen1.5-moe-a2.7b": 2.7, "dots.llm1": 14},
    **{"jamba-v0.1": 12, "olmoe-1b-7b": 1.3, "deepseek-moe-16b": 2.8},
}
"""Billions of active parameters, embeddings included, by the models' cards and reports."""
ACTIVE_WITHOUT_EMBEDDINGS = {"gpt-oss-120b": 5.1, "gpt-oss-20b": 3.6, "glm-4.5": 32}
"""The same, where the cards exclude embeddings."""


@pytest.mark.parametrize("name", [*ACTIVE, *ACTIVE_WITHOUT_EMBEDDINGS])
def test_experts_per_token_are_those_of_the_published_active_parameters(name: str) -> None:
    """One expert more or fewer for each token is outside of the tolerance."""
    key, published = "active_params", ACTIVE.get(name)
    if published is None:
        key, published = "active_non_embedding_params", ACTIVE_WITHOUT_EMBEDDINGS[name]
    model = tfacct.load(name)
    assert model.params().models[0][key] / 1e9 == pytest.approx(published, rel=0.035)
    top_k = next(
        field
        for field in ("num_experts_per_tok", "moe_topk", "experts_per_token")
        if field in model.loaded.config.model_dump()
    )
    for change in (1, -1):
        chosen = model.loaded.config.model_dump()[top_k] + change
        if chosen < 1:
            continue
        counted = tfacct.load(name, **{top_k: chosen}).params().models[0][key] / 1e9
        assert counted != pytest.approx(published, rel=0.035)
