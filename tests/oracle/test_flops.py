"""FLOPs and bytes of what torch and transformers run. Kind: oracle."""

import re
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.families import TINY, configs
from tests.helpers.classes import of_the_class, suppressed_refusals
from tests.helpers.lazy import lazy
from tests.helpers.models import by_kind, context, every_other, tiny
from tfacct import load
from tfacct.ledger.workload import Request
from tfacct.reports.flops import traffic

counting, model, torch = lazy("tfacct.reference.counting"), lazy("tfacct.reference.model"), lazy("torch")
flop_counter, transformers = lazy("torch.utils.flop_counter"), lazy("transformers")


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
    fields = {name: value for name, value in config.items() if name != "model_type"}
    made = transformers.AutoConfig.for_model(config["model_type"], **fields, bos_token_id=None, eos_token_id=None)
    model = transformers.AutoModelForCausalLM.from_config(made, attn_implementation="eager").eval()
    tokens = torch.ones(batch, prompt, dtype=torch.long)
    asked = {"do_sample": False, "min_new_tokens": new, "max_new_tokens": new, "pad_token_id": 0}
    with flop_counter.FlopCounterMode(display=False) as counter, torch.no_grad():
        out = model.generate(tokens, attention_mask=torch.ones_like(tokens), **asked)
    assert out.shape == (batch, prompt + new)
    return counter.get_total_flops()


REQUESTS = {
    "prefill": Request(ctx=23, batch=9),
    "chunk": Request(ctx=23, tokens=13, batch=9),
    "decode": Request(ctx=23, decode=True, batch=9),
    "last logits": Request(ctx=23, tokens=13, batch=9, logits="last"),
}


@pytest.mark.parametrize(("family", "step"), every_other(by_kind(TINY), [*REQUESTS]))
def test_the_modules_of_torch_see_these_bytes(family: str, step: str) -> None:
    """Operands and results of every module in every block, at 4 bytes an element."""
    loaded, request_ = tiny(family), REQUESTS[step]
    built = model.build(loaded.architecture, logits=request_.logits)
    if not loaded.has_cache:  # every step takes the whole context
        request_ = replace(request_, ctx=context(loaded, request_.ctx or 1), tokens=None, decode=False)
    if loaded.source is not None:
        request_ = replace(request_, source=17)
    work = request_.workload(loaded.context, source=loaded.source, has_cache=loaded.has_cache)
    given = model.inputs(loaded.architecture, **work.sizes)
    expected: dict[str, tuple[int, int]] = {}
    for path, product in counting.seen(built, given).products.items():
        folded = re.sub(r"blocks\.\d+\.", "blocks.*.", path)
        read, written = expected.get(folded, (0, 0))
        expected[folded] = read + 4 * (product.left + product.right), written + 4 * product.out
    counted: dict[str, tuple[int, int]] = {}
    for line in traffic([loaded], request_, dtype="fp32").lines:  # one for each kind of blocks, where they differ
        read, written = counted.get(line["path"], (0, 0))
        if line["flops"]:  # an encoder does not run after its source was read
            counted[line["path"]] = read + line["read_bytes"], written + line["written_bytes"]
        else:
            assert line["read_bytes"] == line["written_bytes"] == 0 and line["flops_per_byte"] is None
    assert counted == expected
