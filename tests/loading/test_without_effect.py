"""Set fields that change no count are named, with the fields that decide so. Kind: output."""

import pytest

from tfacct import load


@pytest.mark.parametrize(
    ("line", "hints"),
    [
        (
            "params qwen2-7b --set sliding_window=4096",
            [
                "sliding_window changes no count of qwen2-7b: use_sliding_window = false and max_window_layers = 28"
                " (it does with --set use_sliding_window=true --set max_window_layers=0)"
            ],
        ),
        (
            "compare qwen3-8b --set sliding_window=8192 --set use_sliding_window=true --ctx 8k",
            [
                f"{field} changes no count of qwen3-8b: max_window_layers = 36 (it does with --set max_window_layers=0)"
                for field in ("sliding_window", "use_sliding_window")
            ],
        ),
        ("memory qwen2-7b --set sliding_window=4096 --set use_sliding_window=true --set max_window_layers=14", []),
        ("flops llama-3.1-8b --set rope_theta=1e6", ["rope_theta changes no count of llama-3.1-8b."]),
        ("flops llama-3.1-8b --set num_key_value_heads=8", []),  # its own value
        ("train gpt2 --set attn_pdrop=0", []),  # dropout changes no count, but it changes what a step saves
        ("sweep gpt2 --set n_head=2,4,6 --ctx 1k", []),  # the cache is the same, but not the head size
        (
            "sweep deepseek-v2-lite --ctx 1k --set moe_intermediate_size=512,1024 --set first_k_dense_replace=27",
            [
                "moe_intermediate_size changes no count of deepseek-v2-lite: first_k_dense_replace = 27"
                " (it does with --set first_k_dense_replace=0)"
            ],
        ),
    ],
)
def test_set_fields_without_effect_are_named(line: str, hints: list[str], run) -> None:
    ran = run(*line.split())
    assert ran.code == 0, ran.err
    assert [one for one in ran.err.splitlines() if "changes no count" in one] == [f"hint: {one}" for one in hints]


def test_the_json_has_the_hint_too() -> None:
    (facts,) = load("qwen2-7b", sliding_window=4096).params().document()["models"]
    assert any("use_sliding_window=True max_window_layers=0" in note for note in facts["notes"])
