"""Start-up logs: figures that are read, figures that differ, and hostile logs. Kind: golden, refusal."""

from pathlib import Path

import pytest

from tests.helpers.cli import Run
from tfacct import load
from tfacct.base.errors import NotFoundError, UsageError
from tfacct.engines import logs
from tfacct.engines.profiles import GIB, profile_of
from tfacct.loading import presets

LOG = """INFO 11-01 10:00:00 [api_server.py:1] vLLM API server version 0.19.0
INFO non-default args: {'max_model_len': 8192, 'gpu_memory_utilization': 0.95}
\x1b[0;36m(EngineCore)\x1b[0m INFO Model loading took 14.99 GiB memory and 3 seconds
INFO Available KV cache memory: 58.11 GiB
INFO GPU KV cache size: 476,000 tokens
INFO Maximum concurrency for 8,192 tokens per request: 58.11x
"""


def written(folder: Path, text: str | bytes) -> str:
    file = folder / "start.log"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(file)


def test_figures_and_flags_of_a_log(tmp_path: Path) -> None:
    found = logs.read(profile_of("vllm"), written(tmp_path, LOG))
    assert found["weights"] == (pytest.approx(14.99 * GIB), pytest.approx(0.005 * GIB))
    assert (found["tokens"][0], found["concurrency"][0]) == (476_000, 58.11)
    flags = {"engine_version": "0.19", "max_model_len": 8192, "gpu_memory_utilization": 0.95}
    assert logs.flags(found, presets.load("llama-3.1-8b"), {}) == flags


def test_a_log_that_agrees(tmp_path: Path) -> None:
    start = load("llama-3.1-8b").engine(on="h100", log=written(tmp_path, LOG))
    assert [one["what"] for one in start.log] == ["weights", "pool", "tokens", "concurrency"]
    assert all(one["agrees"] for one in start.log)
    assert start.answer == "The log agrees with the estimate: 4 of 4 figures."
    assert start.engine_version == "0.19" and start.max_model_len == 8192


def test_the_last_start_of_a_log_is_read(tmp_path: Path) -> None:
    """A server that restarts with other flags: the first start lacks the utilization that the second has."""
    first = LOG.replace(", 'gpu_memory_utilization': 0.95", "").replace("58.11 GiB", "50.20 GiB")
    start = load("llama-3.1-8b").engine(on="h100", log=written(tmp_path, first + LOG))
    assert start.answer == "The log agrees with the estimate: 4 of 4 figures."


def test_the_last_start_of_a_log_without_a_line_of_the_server(tmp_path: Path) -> None:
    """`LLM()` and servers from 0.15 on print their version without these words."""
    later = LOG.replace("[api_server.py:1] vLLM API server version 0.19.0", "[utils.py:287] █ version 0.19.0")
    later = later.replace("INFO Model", "INFO Initializing a V1 LLM engine (v0.19.0)\nINFO Model")
    first = later.replace(", 'gpu_memory_utilization': 0.95", "").replace("58.11 GiB", "50.20 GiB")
    start = load("llama-3.1-8b").engine(on="h100", log=written(tmp_path, first + later))
    assert start.answer == "The log agrees with the estimate: 4 of 4 figures."


LAST_LINE = """INFO [gpu_worker.py:298] Available KV cache memory: 8.60 GiB
INFO [kv_cache_utils.py:864] GPU KV cache size: 62,608 tokens
INFO [kv_cache_utils.py:868] Maximum concurrency for 1,024 tokens per request: 61.14x
INFO [gpu_worker.py:391] Free memory on device (23.08/23.53 GiB) on startup. Desired GPU memory utilization is \
(0.8, 18.82 GiB). Actual usage is 8.8 GiB for weight, 1.4 GiB for peak activation, 0.02 GiB for non-torch memory, and \
0.68 GiB for CUDAGraph memory. Replace gpu_memory_utilization config with `--kv-cache-memory=8347223347` to fit
"""
"""Of Qwen3-8B in fp8 on an RTX 4090, as vLLM 0.10.2 printed it."""


def test_memory_of_the_last_line(tmp_path: Path) -> None:
    """It has the card's total and the utilization too, so that the estimate has the printed tokens."""
    known = {"on": "4090", "dtype": "fp8-block", "engine_version": "0.10", "max_model_len": 1024}
    start = load("qwen3-8b").engine(**known, log=written(tmp_path, LAST_LINE))
    figures = ["weights", "activations", "outside", "pool", "tokens", "concurrency"]
    assert [one["what"] for one in start.log] == figures and all(one["agrees"] for one in start.log)
    assert start.kv_cache_tokens == 62_608 and start.total_memory_bytes == int(23.53 * GIB)


def test_memory_of_the_last_line_from_0_27_on(tmp_path: Path) -> None:
    """Weights and memory outside torch are one figure, and activations have the graphs in them: none is compared."""
    line = """Free memory on device (78.84/79.25 GiB) on startup. Desired GPU memory utilization is (0.92, 72.91 GiB).\
 Actual usage is 15.26 GiB for consumed memory (weights + non-torch), 1.44 GiB for peak activation, and 0.23 GiB for\
 CUDAGraph memory."""
    found = logs.read(profile_of("vllm"), written(tmp_path, line))
    assert found.keys() == {"gpu_memory_utilization", "total_memory"}
    assert (found["gpu_memory_utilization"][0], found["total_memory"][0]) == (0.92, pytest.approx(79.25 * GIB))


def test_memory_of_the_v0_engine(tmp_path: Path) -> None:
    line = """the current vLLM instance can use total_gpu_memory (22.06GiB) x gpu_memory_utilization (0.90) = 19.85GiB
model weights take 2.88GiB; non_torch_memory takes 0.05GiB; PyTorch activation peak memory takes 1.40GiB; the rest of\
 the memory reserved for KV Cache is 15.52GiB."""
    found = logs.read(profile_of("vllm", "0.7"), written(tmp_path, line))
    gib = {"weights": 2.88, "outside": 0.05, "activations": 1.4, "pool": 15.52, "total_memory": 22.06}
    assert {name: found[name][0] / GIB for name in gib} == pytest.approx(gib)


def test_flags_of_the_cache(tmp_path: Path) -> None:
    """A size, tokens of a block, and what a request has of states, all of which the tokens follow from."""
    line = "non-default args: {'kv_cache_memory_bytes': 9126805504, 'block_size': 32}\n"
    start = load("llama-3.1-8b").engine(on="h100", log=written(tmp_path, f"{line}GPU KV cache size: 69,632 tokens"))
    assert (start.pool_bytes, start.block_size, start.log[0]["computed"]) == (9_126_805_504, 32, 69_632)
    line = "Forcing kv cache block size to 64 for FlashMLA backend."
    assert logs.read(profile_of("vllm"), written(tmp_path, line))["block_size"][0] == 64
    for mode, blocks in (("align", 2), ("none", 1)):
        line = f"Mamba cache mode is set to '{mode}' for Qwen3_5 by default\nGPU KV cache size: 9 tokens"
        start = load("qwen3.5-9b").engine(on="h100", log=written(tmp_path, line))
        assert start.groups[0]["kind"] == "state" and start.groups[0]["pages_per_request"] == blocks


def test_what_the_estimate_does_not_include_is_named(tmp_path: Path) -> None:
    usual = "config: speculative_config=None, 'kv_transfer_config': None, data_parallel_size=1, enable_lora=False\n"
    assert load("llama-3.1-8b").engine(on="h100", log=written(tmp_path, usual + LOG)).answer.endswith("figures.")
    draft = written(
        tmp_path, LOG + "config: data_parallel_size=1, speculative_config=SpeculativeConfig(method='mtp')\n"
    )
    answer = load("llama-3.1-8b").engine(on="h100", log=draft).answer
    assert answer.endswith(" The log has speculative_config, which is not included.")
    limited = written(tmp_path, SGLANG.replace("context_length=None", "max_total_tokens=20480, context_length=None"))
    answer = load("llama-3.1-8b").engine(engine="sglang", on="h100", log=limited).answer
    assert answer.endswith(" The log has max_total_tokens, which is not included.")


def test_a_log_in_utf_16(tmp_path: Path) -> None:
    """As PowerShell writes what it redirects."""
    assert load("llama-3.1-8b").engine(on="h100", log=written(tmp_path, LOG.encode("utf-16"))).agrees


def test_a_length_that_the_engine_chooses_is_no_length(tmp_path: Path) -> None:
    """vLLM writes -1 for the longest length that fits, and the length that it chose in the next line."""
    chosen = LOG.replace("'max_model_len': 8192", "max_model_len=-1").replace("0.95}", "0.95}\nmax_seq_len=8192")
    start = load("llama-3.1-8b").engine(on="h100", log=written(tmp_path, chosen))
    assert start.max_model_len == 8192 and start.answer == "The log agrees with the estimate: 4 of 4 figures."


def test_the_first_figure_that_differs_is_named(tmp_path: Path) -> None:
    log = written(tmp_path, LOG.replace("58.11 GiB", "55.11 GiB").replace("476,000", "451,456"))
    start = load("llama-3.1-8b").engine(on="h100", log=log)
    assert start.answer.startswith(
        "The log does not agree with the estimate: pool is the first figure that differs, by"
    )
    assert " -5.2% (another utilization, or another " in start.answer
    assert [one["what"] for one in start.log if not one["agrees"]] == ["pool", "tokens"]


@pytest.mark.parametrize(
    ("tokens", "cause"),
    [
        ("451,456", "another --max-num-seqs or version, another utilization, or another process on the card?"),
        ("300,000", "another utilization, or another process on the card?"),
        ("952,000", "another dtype of the cache?"),
    ],
)
def test_causes_go_by_the_size_of_the_deviation(run: Run, tmp_path: Path, tokens: str, cause: str) -> None:
    """1.88 GiB of 58.1 are 3.2%: what the number of requests changes. With graphs of 0.84 GiB (0.33), 4.6%."""
    line = f"GPU KV cache size: {tokens} tokens\n"
    given = ["--max-model-len", "8192", "--gpu-memory-utilization", "0.95"]
    ran = run("engine", "vllm", "llama-3.1-8b", "--on", "h100", *given, "--log", written(tmp_path, line))
    assert ran.code == 1 and cause in ran.out_line
    assert "Assumed, because the log does not have it: --engine-version 0.33." in ran.out_line


def test_flags_missing_from_a_log_are_assumed_and_named(tmp_path: Path) -> None:
    log = written(tmp_path, "vLLM API server version 0.19.0\nAvailable KV cache memory: 54.01 GiB\n")
    start = load("llama-3.1-8b").engine(on="h100", log=log)
    assumed = "Assumed, because the log does not have it: gpu_memory_utilization=0.9, max_model_len=131072."
    assert start.agrees and start.answer == f"The log agrees with the estimate: 1 of 1 figures. {assumed}"


def test_a_flag_that_is_given_holds_over_the_log(tmp_path: Path) -> None:
    start = load("llama-3.1-8b").engine(on="h100", log=written(tmp_path, LOG), max_model_len=4096, tp=2)
    assert (start.max_model_len, start.devices) == (4096, 2)


HOSTILE = {
    "empty": b"",
    "binary": bytes(range(256)) * 4000,
    "one line": b"GPU KV cache size: " + b"9" * 5_000_000,
    "no end": b"Model loading took " + b"1" * 400 + b" GiB",
    "colours": b"\x1b[31m\x1b]0;title\x07\x1b" * 1000,
    "cut": LOG.encode()[:60].replace(b"0.19", b"0."),
    "other digits": "Available KV cache memory: ٣٣.٣٣ GiB".encode(),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_log_is_an_error(run: Run, tmp_path: Path, name: str) -> None:
    ran = run("engine", "vllm", "llama-3.1-8b", "--on", "h100", "--log", written(tmp_path, HOSTILE[name]))
    assert (ran.code, ran.out) == (2, "") and "no start-up line of vLLM" in ran.err


def test_a_log_that_is_no_file(tmp_path: Path) -> None:
    for path in (str(tmp_path), str(tmp_path / "none"), "\0", "/dev/zero"):
        with pytest.raises(NotFoundError):
            logs.read(profile_of("vllm"), path)


def test_a_version_of_a_log_without_a_profile_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"0\.99 has no profile"):
        load("llama-3.1-8b").engine(on="h100", log=written(tmp_path, LOG.replace("0.19.0", "0.99.0")))


def test_a_log_of_zeros_divides_nothing(tmp_path: Path) -> None:
    text = LOG.replace("476,000", "0").replace("58.11 GiB", "0.00 GiB").replace("8192", "0")
    with pytest.raises(UsageError):  # a longest request of 0 tokens
        load("llama-3.1-8b").engine(on="h100", log=written(tmp_path, text))
    assert not load("llama-3.1-8b").engine(on="h100", log=written(tmp_path, text), max_model_len=9).log[-1]["agrees"]


def test_tokens_may_be_off_by_the_share_of_their_pool(tmp_path: Path) -> None:
    """0.143 of 58.11 GiB are 0.25%: 1,171 of 476,000 tokens. 1,000 more agree, 1,600 more (0.34%) do not."""
    for more, agrees in ((1000, True), (1600, False)):
        log = written(tmp_path, LOG.replace("476,000", f"{476_000 + more:,}"))
        (line,) = (one for one in load("llama-3.1-8b").engine(on="h100", log=log).log if one["what"] == "tokens")
        assert line["agrees"] == agrees


def test_memory_outside_torch_may_be_off_by_a_tenth_of_a_gib(tmp_path: Path) -> None:
    """vLLM 0.19 took 0.24 to 0.26 GiB on this card."""
    for gib, agrees in ("0.30", True), ("0.60", False):
        log = written(tmp_path, f"{LOG}non-torch forward increase memory: {gib} GiB\n")
        (line,) = (one for one in load("llama-3.1-8b").engine(on="h100", log=log).log if one["what"] == "outside")
        assert line["agrees"] == agrees


def test_flags_that_are_words(tmp_path: Path) -> None:
    words = "', 'quantization': 'fp8', 'kv_cache_dtype': 'fp8_e4m3', 'enforce_eager': True, 'x': '"
    log = written(tmp_path, LOG.replace("{'max_model_len'", "{'x': '" + words + "', 'max_model_len'"))
    line = load("llama-3.1-8b").engine(on="h100", log=log).launch
    assert "--quantization fp8 --kv-cache-dtype fp8 --enforce-eager" in line
    default = written(tmp_path, LOG + "config: quantization=None, enforce_eager=False, kv_cache_dtype=auto\n")
    assert not logs.read(profile_of("vllm"), default).keys() & {"dtype", "kv_dtype", "enforce_eager"}
    other = written(tmp_path, LOG + "quantization=bitsandbytes, a quantization: none\n")
    with pytest.raises(UsageError, match="has quantization bitsandbytes"):
        load("llama-3.1-8b").engine(on="h100", log=other)
    assert load("llama-3.1-8b").engine(on="h100", log=other, dtype="int8").starts


def test_a_log_of_flags_alone(run: Run, tmp_path: Path) -> None:
    log = written(tmp_path, "".join(LOG.splitlines(keepends=True)[:2]))
    start = load("llama-3.1-8b").engine(on="h100", log=log)
    assert start.log is None and "Nothing was compared" in start.answer and start.answer.startswith("vLLM starts")
    out = run("engine", "vllm", "llama-3.1-8b", "--on", "h100", "--log", written(tmp_path, LOG), "-v").out
    assert "will say" not in out


def test_a_bad_value_of_a_log_is_blamed_on_the_log(run: Run, tmp_path: Path) -> None:
    log = written(tmp_path, LOG.replace("8192", "0"))
    assert "with the flags of --log: " in run("engine", "vllm", "llama-3.1-8b", "--on", "h100", "--log", log).err
    assert "it is a folder" in run("engine", "vllm", "llama-3.1-8b", "--on", "h100", "--log", str(tmp_path)).err


SGLANG = """[2026-03-21 03:31:56] server_args=ServerArgs(model_path='meta-llama/Llama-3.1-8B', quantization=None,\
 context_length=None, kv_cache_dtype='auto', mem_fraction_static=0.834, chunked_prefill_size=8192, tp_size=1)
[2026-03-21 03:32:05] Load weight begin. avail mem=78.68 GB
[2026-03-21 03:32:09] Load weight end. elapsed=4.02 s, type=LlamaForCausalLM, avail mem=63.69 GB, mem usage=14.99 GB.
[2026-03-21 03:32:09] KV Cache is allocated. #tokens: 414310, K size: 25.29 GB, V size: 25.29 GB
[2026-03-21 03:32:15] max_total_num_tokens=414310, chunked_prefill_size=8192, max_prefill_tokens=16384,\
 max_running_requests=4096, context_len=131072, available_gpu_mem=10.31 GB
"""
"""Lines as model_runner.py, memory_pool.py and scheduler.py print them."""


def test_lines_of_sglang(tmp_path: Path) -> None:
    log = written(tmp_path, SGLANG)
    figures = {name: figure[0] for name, figure in logs.read(profile_of("sglang"), log).items()}
    flags = {"max_model_len": 131_072, "gpu_memory_utilization": 0.834, "tp": 1}
    assert figures == {**flags, "weights": pytest.approx(14.99 * GIB), "tokens": 414_310}
    start = load("llama-3.1-8b").engine(engine="sglang", on="h100", log=log)
    assert [(one["what"], one["agrees"]) for one in start.log] == [("weights", True), ("tokens", True)]
    other = written(tmp_path, SGLANG.replace("414310", "401310").replace("mem usage=14.99", "mem usage=15.71"))
    start = load("llama-3.1-8b").engine(engine="sglang", on="h100", log=other)
    assert not any(one["agrees"] for one in start.log) and ": weights is the first figure that differs" in start.answer
    restarted = written(tmp_path, SGLANG.replace("0.834", "0.7") + SGLANG)
    assert load("llama-3.1-8b").engine(engine="sglang", on="h100", log=restarted).agrees


def test_weights_of_sglang_are_a_fall_of_free_memory(tmp_path: Path) -> None:
    """A start printed 15.11 GB for the weights that vLLM has 14.99 GiB of."""
    log = written(
        tmp_path, "Load weight end. avail mem=63.48 GB, mem usage=15.11 GB.\n#tokens: 442750, K size: 27.02 GB"
    )
    start = load("llama-3.1-8b").engine(engine="sglang", on="h100", engine_version="0.4", log=log)
    assert [(one["what"], one["agrees"]) for one in start.log] == [("weights", True), ("tokens", True)]


def test_a_latent_cache_of_sglang(tmp_path: Path) -> None:
    """DeepSeek-V2-Lite caches 27 layers of 576 numbers in bf16 per token, in one buffer: 31,104 bytes."""
    line = "KV Cache is allocated. #tokens: 1249407, KV size: 36.19 GB\n"
    start = load("deepseek-v2-lite").engine(engine="sglang", on="h100", log=written(tmp_path, line))
    assert start.pool_bytes == start.kv_cache_tokens * 31_104
    assert [(one["what"], one["agrees"]) for one in start.log] == [("pool", True), ("tokens", True)]


LLAMA_CPP = """load_tensors: offloaded 33/33 layers to GPU
load_tensors:        CUDA0 model buffer size =  4403.49 MiB
load_tensors:   CPU_Mapped model buffer size =   281.81 MiB
llama_context: n_ctx         = 8192
llama_context: n_ctx_per_seq = 8192
llama_context: n_batch       = 2048
llama_context: n_ubatch      = 512
llama_kv_cache:        CPU KV buffer size =     0.00 MiB
llama_kv_cache:      CUDA0 KV buffer size =  1024.00 MiB
llama_kv_cache: size = 1024.00 MiB (  8192 cells,  32 layers,  1/1 seqs), K (f16):  512.00 MiB, V (f16):  512.00 MiB
llama_context:  CUDA_Host compute buffer size =    24.01 MiB
llama_context:      CUDA0 compute buffer size =   258.50 MiB
"""
"""Lines as llama-model.cpp, llama-context.cpp and llama-kv-cache.cpp print them."""


def test_lines_of_llama_cpp(tmp_path: Path) -> None:
    """A cache of 8,192 tokens of 128 KiB is 1,024 MiB; 512 rows of 128,256 logits and a residual stream of 4,096 in
    fp32 are 258.5 MiB, which the larger estimate with two residual streams is 8 MiB above."""
    log = written(tmp_path, LLAMA_CPP)
    figures = {name: figure[0] for name, figure in logs.read(profile_of("llama.cpp"), log).items()}
    assert (figures["max_model_len"], figures["max_num_batched_tokens"]) == (8192, 512)
    assert (figures["pool"], figures["activations"]) == (1 << 30, 512 * (128_256 + 4096) * 4)
    start = load("llama-3.1-8b").engine(engine="llama.cpp", on="4090", dtype="q4_k_m", log=log)
    assert [one["what"] for one in start.log] == ["weights", "activations", "pool"]
    assert all(one["agrees"] for one in start.log) and start.launch.endswith("-c 8192 -ub 512")


def test_a_trial_run_of_llama_cpp_allocates_nothing(tmp_path: Path) -> None:
    trial = "CUDA0 model buffer size =     0.00 MiB\nllama_kv_cache:      CUDA0 KV buffer size =     0.00 MiB\n"
    start = load("llama-3.1-8b").engine(
        engine="llama.cpp", on="4090", dtype="q4_k_m", log=written(tmp_path, trial + LLAMA_CPP)
    )
    assert all(one["agrees"] for one in start.log)


@pytest.mark.parametrize(("name", "text"), [("sglang", SGLANG), ("llama.cpp", LLAMA_CPP)])
def test_a_hostile_log_of_another_engine(run: Run, tmp_path: Path, name: str, text: str) -> None:
    """Figures of thousands of digits, control sequences and half a file: an answer or an error, never a traceback."""
    for hostile in (
        text.replace("= ", "= " + "9" * 5000),
        text.replace(" ", "\x1b]0;"),
        text[: len(text) // 2],
        "\0" * 9,
    ):
        ran = run("engine", name, "llama-3.1-8b", "--on", "h100", "--log", written(tmp_path, hostile))
        assert ran.code in (0, 1, 2) and "Traceback" not in ran.err
