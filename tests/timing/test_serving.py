"""Serving with drafts and with adapters. Kind: golden, refusal."""

from typing import Any

import pytest

import tfacct
from tfacct.base.errors import TfacctError
from tfacct.ledger.workload import Workload
from tfacct.loading import devices
from tfacct.loading.find import find
from tfacct.timing.drafts_and_adapters import ServedLora, with_adapters, with_draft
from tfacct.timing.kernel_time import CONSTANTS, step
from tfacct.timing.placement import Deployment, Placement
from tfacct.timing.serving import Host, Speculation

DEEPSEEK = find("deepseek-v3")
LLAMA = tfacct.load("llama-3.1-70b")


def placed(dtype: str | None = None) -> Placement:
    return Deployment(dtype=dtype).place(DEEPSEEK, 8, devices.load("b200-hgx"))


@pytest.mark.parametrize(
    ("model", "on", "ep", "dtype", "kv_dtype", "sizes", "seconds"),
    [
        ("llama-3.1-70b", "1xb200-hgx", 1, "fp8", "bf16", (7373, 922, 4), 17.63),
        ("qwen3-32b", "4xh100-sxm", 1, "bf16", "bf16", (1024, 512, 64), 8.894),
        ("qwen3-32b", "2xh100-sxm", 1, "fp8", "fp8", (4096, 512, 8), 6.973),
        ("qwen3-32b", "4xh100-sxm", 1, "fp8", "fp8", (4096, 512, 64), 13.34),
        ("qwen3-32b", "4xh100-sxm", 1, "bf16", "bf16", (4096, 512, 64), 18.74),
        ("gpt-oss-120b", "1xh200-sxm", 1, "mxfp4", "fp8", (922, 922, 8), 7.879),
        ("llama-3.1-70b", "4xh200-sxm", 1, "fp8", "bf16", (922, 922, 8), 9.432),
        ("llama-3.1-8b", "4xh200-sxm", 1, "fp8", "bf16", (2000, 100, 176), 3.407),
        ("qwen3-235b-a22b", "8xh100-sxm", 8, "fp8", "fp8", (256, 256, 32), 4.838),
        ("llama-3.1-70b", "8xb200-hgx", 1, "nvfp4", "bf16", (922, 922, 8), 6.173),
        ("gpt-oss-120b", "8xb200-hgx", 1, "mxfp4", "fp8", (7373, 922, 64), 5.96),
        ("gpt-oss-120b", "4xh200-sxm", 4, "mxfp4", "fp8", (7373, 922, 4), 4.891),
        ("llama-3.1-405b", "8xmi300x", 1, "fp8", "fp8", (2048, 2048, 4), 52.281),
    ],
)
def test_published_requests(
    model: str, on: str, ep: int, dtype: str, kv_dtype: str, sizes: tuple[int, int, int], seconds: float
) -> None:
    """Seconds of a request, from its first token and the mean time per token, in runs by NVIDIA and InferenceX, as
    ai-dynamo/aiconfigurator (@095f58a5) collects them. Chosen: close runs of many devices, formats and layouts. The
    median error of all runs is 5.5 % of dense models and 9.0 % of MoE models. The run of MI300X is AMD's latency of
    a batch in vLLM 0.7.3 (ROCm/vllm @b309ea79, docs/dev-docker/README.md)."""
    prompt, new, requests = sizes
    layout: Any = {"on": on, "tp": int(on.partition("x")[0]), "ep": ep, "dtype": dtype, "kv_dtype": kv_dtype}
    (row,) = tfacct.load(model).serve(**layout, prompt=prompt, new=new, requests=requests).rows
    assert row["request_seconds"] == pytest.approx(seconds, rel=0.07)


@pytest.mark.parametrize(
    ("tokens", "acceptance", "each"),
    [(1, 0.8, 1.8), (3, 0.5, 1 + 0.5 + 0.25 + 0.125), (3, 0, 1), (3, 1, 4), (2, 0.6, (1 - 0.6**3) / (1 - 0.6))],
)
def test_new_tokens_of_a_step(tokens: int, acceptance: float, each: float) -> None:
    draft = with_draft(placed(), Speculation(tokens, acceptance), 2048).host.draft
    assert draft is not None and draft.asked.accepted == pytest.approx(each)


def test_a_step_verifies_the_drafts_and_one_more_token() -> None:
    plain, drafting = placed().host, with_draft(placed(), Speculation(3, 0.5), 2048).host
    served = drafting.served(16, 1024, 512)
    assert drafting.draft is not None
    draft = drafting.draft.host.step(Workload(1024 + 256, 1, 16))
    verified = step(
        plain.kernels(Workload(1024 + 256 + 3, 4, 16)), plain.device, 16, 1
    )  # no prefill: launches in a graph
    # Three passes of the layer, each without an engine's own time between two steps.
    assert served.decode.seconds == pytest.approx(verified.seconds + 3 * (draft.seconds - draft.engine))
    assert served.request == pytest.approx(16 * served.prompt + 511 / 1.875 * served.decode.seconds + CONSTANTS.request)
    assert served.token[0] == pytest.approx(served.decode.seconds / 1.875)
    assert served.request_bound < served.request


def test_drafts_that_are_never_accepted_cost_time() -> None:
    none, every = (with_draft(placed(), Speculation(3, share), 2048) for share in (0, 1))
    plain, none, every = (one.host.served(4, 1024, 1024).request for one in (placed(), none, every))
    assert every < plain < none


def test_the_layer_that_drafts_shares_the_head() -> None:
    # 11,610,067,968 parameters of the multi-token prediction layer: the model has 671,026,419,200 without, and
    # 682,636,487,168 with `--set mtp=true`. Head and embedding are the model's own.
    one = Deployment(dtype="bf16").place(DEEPSEEK, 1, devices.load("b300-hgx"))
    two = with_draft(one, Speculation(1, 0.5), 2048)
    assert two.host.stored() - one.host.stored() == 2 * 11_610_067_968
    totals = [tfacct.load("deepseek-v3", **changed).params().total_params for changed in ({}, {"mtp": True})]
    assert totals[1] - totals[0] == 11_610_067_968
    # one more layer of 61 caches latents
    assert two.host.cached(1000, 1) * 61 == one.host.cached(1000, 1) * 62


def test_a_draft_model_has_weights_and_a_cache_of_its_own() -> None:
    def largest(**more: Any) -> Any:
        return LLAMA.serve(on="4xh100", prompt=1024, new=1024, requests=1, **more)

    plain, drafted = largest(), largest(draft_tokens=2, acceptance=0.7, draft="llama-3.2-1b")
    # 1,235,814,400 parameters of Llama-3.2-1B in bf16 on 4 devices, but for 33 norms of 2,048 numbers on each.
    stored = (2 * 1_235_814_400 + 3 * 33 * 2048 * 2) // 4
    assert drafted.drafts == {
        "draft_tokens": 2,
        "acceptance": 0.7,
        "tokens_per_step": pytest.approx(2.19),
        "draft_model": "llama-3.2-1b",
        "draft_weights_bytes": stored,
    }
    assert plain.drafts is None
    # 2,048 tokens of 80 layers, and of 16 more: 8 heads of 128, and 8 of 64, keys and values of 2 bytes
    each, more = (2048 * layers * 8 * head * 2 * 2 // 4 for layers, head in ((80, 128), (16, 64)))
    free = plain.largest_requests * each
    assert (free - stored) // (each + more) <= drafted.largest_requests <= (free + each - stored) // (each + more)


def test_a_draft_model_drafts_no_token_past_its_positions() -> None:
    # gpt2 has 1,024 positions; the larger model has its vocabulary of 50,257 tokens.
    def served(new: int) -> Any:
        model, drafts = tfacct.load("llama-3.1-8b", vocab_size=50_257), {"draft_tokens": 2, "acceptance": 0.5}
        return model.serve(on="h100", prompt=1000, new=new, requests=1, draft="gpt2", **drafts)

    assert served(24).drafts["draft_model"] == "gpt2"
    with pytest.raises(TfacctError, match=r"gpt2: .*1,024"):
        served(25)


EACH = 16 * 32 * (2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14336))
"""Parameters of an adapter of rank 16 on the 7 linear layers of each of the 32 layers of Llama-3.1-8B: peft has as
many. q and o are 4,096 × 4,096, k and v 4,096 × 1,024, gate, up and down 4,096 × 14,336."""


def placed_model(name: str = "llama-3.1-8b", count: int = 1) -> Placement:
    return Deployment().place(find(name), count, devices.load("h100-sxm"))


def added(plain: Placement, lora: ServedLora) -> Host:
    host = with_adapters(plain, lora).host
    assert host.adapters is not None
    return host


@pytest.mark.parametrize("loaded", [1, 4])
def test_adapters_are_stored_next_to_the_weights(loaded: int) -> None:
    assert EACH == 41_943_040
    plain = placed_model()
    assert added(plain, ServedLora("16", loaded)).stored() - plain.host.stored() == 2 * loaded * EACH


def test_devices_share_adapters_as_they_share_the_weights() -> None:
    # On each of 2 devices, A of q, k, v, gate and up is whole and B half; of o and down, A is half and B whole.
    per_layer = 16 * (5 * 4096 + (4096 + 2 * 1024 + 2 * 14336) // 2 + (4096 + 14336) // 2 + 2 * 4096)
    plain = placed_model(count=2)
    host = added(plain, ServedLora("16"))
    assert host.stored() - plain.host.stored() == 2 * 32 * per_layer
    # No collectives of their own: partial sums are added to those of the layer.
    assert host.adapters is not None
    assert {kernel.kind for kernel in host.adapters.kernels(host, Workload(64, 1, 4))} == {"gemm"}


@pytest.mark.parametrize(("sequences", "used"), [(1, 1), (3, 3), (64, 4)])
def test_each_sequence_reads_an_adapter_of_its_own(sequences: int, used: int) -> None:
    host = added(placed_model(), ServedLora("16", 4))
    assert host.adapters is not None
    kernels = host.adapters.kernels(host, Workload(1000, 1, sequences))
    assert sum(kernel.read for kernel in kernels) == 2 * used * EACH
    assert sum(kernel.flops for kernel in kernels) == 2 * sequences * EACH
    # A and B of q, k and v are two launches, of o two, of gate and up two, of down two.
    assert sum(kernel.times for kernel in kernels) == 32 * 8


def test_a_fused_linear_layer_has_one_a() -> None:
    # GPT-2 has q, k and v as one layer of 768 × 2,304: 12 · 8 · (768 + 2,304).
    plain = placed_model("gpt2")
    assert added(plain, ServedLora("8:c_attn")).stored() - plain.host.stored() == 2 * 12 * 8 * (768 + 2304)


def test_a_request_with_adapters_takes_longer_and_has_no_interval() -> None:
    model = tfacct.load("llama-3.1-8b")
    asked: dict[str, Any] = {"on": "h100", "prompt": 1024, "new": 256}
    plain, more = model.serve(**asked, requests=8), model.serve(**asked, requests=8, lora=16, adapters_loaded=8)
    assert more.lines[0]["value_seconds"] > plain.lines[0]["value_seconds"]
    assert more.lines[0]["interval_80_seconds"] is None and more.validation is None
    assert more.adapters == {
        "lora": "16",
        "adapters_loaded": 8,
        "adapter_parameters": EACH,
        "adapters_bytes": 16 * EACH,
    }
    assert plain.adapters is None and more.largest_requests < plain.largest_requests
    notes = " ".join(more.notes)
    assert "No run with LoRA adapters was measured" in notes and "8 LoRA adapters of rank 16 in bf16: 640 MiB." in notes


def test_adapters_and_drafts_work_together() -> None:
    report = tfacct.load("llama-3.1-8b").serve(
        on="h100", prompt=64, new=64, requests=1, lora=8, draft_tokens=2, acceptance=0.5, draft="llama-3.2-1b"
    )
    assert report.adapters["adapter_parameters"] == EACH // 2 and report.drafts["tokens_per_step"] == 1.75
