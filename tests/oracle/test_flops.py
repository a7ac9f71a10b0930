"""FLOPs of what transformers generates. Kind: oracle."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.families import TINY, configs
from tests.helpers.classes import causal, of_the_class, suppressed_refusals
from tests.helpers.lazy import lazy
from tfacct import load

torch, transformers, flop_counter = lazy("torch"), lazy("transformers"), lazy("torch.utils.flop_counter")


@pytest.mark.parametrize("family", ["gpt2", "llama", "qwen2"])
def test_transformers_generate_runs_what_is_counted(family: str) -> None:
    """Greedy, eager, with a cache: random configs, prompts and lengths."""

    @settings(max_examples=4, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(config=configs(family), batch=st.integers(1, 3), prompt=st.integers(1, 6), new=st.integers(1, 6))
    def check(config: dict, batch: int, prompt: int, new: int) -> None:
        ours = load(config).generate(ctx=prompt, new_tokens=new, batch=batch)
        with suppressed_refusals(), of_the_class():
            theirs = generated_flops(config, batch, prompt, new)
        assert theirs == ours.total

    check()
    ours = load(TINY[family]).generate(ctx=7, new_tokens=6, batch=3)
    assert generated_flops(TINY[family], 3, 7, 6) == ours.total


def generated_flops(config: dict, batch: int, prompt: int, new: int) -> int:
    """What torch counts while `generate` makes `new` tokens."""
    transformers.logging.set_verbosity_error()
    model = causal({**config, "bos_token_id": None, "eos_token_id": None}, attn_implementation="eager").eval()
    tokens = torch.ones(batch, prompt, dtype=torch.long)
    asked = {"do_sample": False, "min_new_tokens": new, "max_new_tokens": new, "pad_token_id": 0}
    with flop_counter.FlopCounterMode(display=False) as counter, torch.no_grad():
        out = model.generate(tokens, attention_mask=torch.ones_like(tokens), **asked)
    assert out.shape == (batch, prompt + new)
    return counter.get_total_flops()
