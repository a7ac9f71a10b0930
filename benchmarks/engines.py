"""Errors of `tfacct engine vllm` on published start-up logs: python benchmarks/engines.py FOLDER

FOLDER has startups.csv and aligned_blocks.csv, with figures that engines printed at start. Neither is part of the
project. `can_score` names the terms of a row whose inputs are all known; only these are compared. The exit code is 1 if
an error exceeds its limit, or if an exception is no longer needed.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from tfacct.architecture.parts import Mixer
from tfacct.base.errors import NotFoundError, TfacctError
from tfacct.engines import vllm
from tfacct.engines.launch import Flags, Launch
from tfacct.engines.pages import aligned_block
from tfacct.engines.profiles import GIB, printed_tokens, profile_of
from tfacct.engines.weights import weights
from tfacct.loading import devices, presets, spellings
from tfacct.loading.find import find
from tfacct.loading.model import LoadedModel, load_model

Row = Mapping[str, str]
GIB_LIMITS = {"peak": 0.01, "weights": 0.015}
SHARE_LIMITS = {"pool": 0.01, "tokens": 0.01, "layout": 0.001, "concurrency": 0.001}
LIMITS = {**GIB_LIMITS, **SHARE_LIMITS}
"""Limits of errors, in GiB or as a share of the printed figure. `layout` and `concurrency`: from the printed pool."""
STATED = profile_of("vllm")["error"]
"""Errors of the tokens, as `tfacct engine` prints them."""
UNKNOWN_GIB = 80
"""Memory assumed for a card that the log does not name. No term that depends on it is compared."""
OLDER, NEWER = "rtx-3090", "h100-sxm"
"""Cards assumed if the log names none: older than Hopper, and others."""
MEASURED = range(12, 20)
"""Minor versions with a stated error."""
EXCEPTIONS = {
    ("mistral-small-3.1-24b-instruct-2503-quantized.w8a8", "peak"): "quantized activations add T × F bytes",
    ("mistral-small-3.2-24b", "peak"): "0.11 widens images",
    ("llama-3.1-8b@PP0", "peak"): "0.18 GiB of the first pipeline rank are not explained",
    ("mistral-small-3.1-24b-instruct-2503-quantized.w8a8@TP0", "weights"): "0.025 GiB on two cards are not explained",
    ("w4a16", "weights"): "Marlin repacks 4-bit weights with workspaces",
    ("qwen3-8b@0.8.5", "weights"): "0.03 GiB of 0.8.5 on four cards are not explained",
    ("qwen3.5-4b", "weights"): "its image encoder is not supported",
    ("llama-3.2-11b-vision", "weights"): "its image encoder is not supported",
    ("kimi-linear", "concurrency"): "its pool is known to one decimal",
}
"""(Part of the model's name with `@` rank or version, terms) → why their errors may exceed the limit."""

SIGLIP = {
    "model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
    "num_attention_heads": 16, "image_size": 896, "patch_size": 14, "vision_use_head": False,
}  # fmt: skip
PIXTRAL = {
    "model_type": "pixtral", "hidden_size": 1024, "head_dim": 64, "intermediate_size": 4096, "num_hidden_layers": 24,
    "num_attention_heads": 16, "image_size": 1540, "patch_size": 14, "num_channels": 3,
}  # fmt: skip
MISTRAL_SMALL = {
    "model_type": "mistral", "hidden_size": 5120, "intermediate_size": 32768, "num_hidden_layers": 40,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 131072,
    "max_position_embeddings": 131072, "rope_theta": 1e9, "rms_norm_eps": 1e-5, "sliding_window": None,
    "tie_word_embeddings": False,
}  # fmt: skip
COMPOSITE: dict[str, dict[str, Any]] = {
    "mistral-small-3": {
        "model_type": "mistral3", "text_config": MISTRAL_SMALL, "vision_config": PIXTRAL, "spatial_merge_size": 2,
        "multimodal_projector_bias": False, "tie_word_embeddings": False,
    },
}  # fmt: skip
"""Public configs of models with an image encoder that are not presets, by the beginning of the model's name."""
FIELDS: dict[str, dict[str, Any]] = {
    "qwen2.5-72b": {"max_position_embeddings": 32768},
    "granite-3.3-8b": {"vocab_size": 49159},
    "qwen3.5-4b": {"hidden_size": 2560, "intermediate_size": 9216},
}
"""Fields of the served model's config.json that differ from the preset."""
PRESETS = {
    "qwen3.5-4b": "qwen3.5-9b",
    "granite-3.3-8b": "granite-3.1-8b",
    "llama-3.2-11b-vision": "llama-3.2-11b-vision-text",
}
"""Presets of the same shape, by the beginning of the served model's name."""
CHANNELS = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True, "dynamic": False}
QUANTIZED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("fp8", CHANNELS),
    ("w8a8", {**CHANNELS, "type": "int"}),
    ("w4a16", {**CHANNELS, "type": "int", "num_bits": 4, "strategy": "group", "group_size": 128}),
)
"""Schemes of compressed-tensors, by a word in the served model's name."""


@cache
def model(name: str) -> LoadedModel:
    """The served model, by its hub id. Raises TfacctError."""
    plain = name.lower().rpartition("/")[2]
    plain = re.sub(r"^meta-", "", plain)
    scheme = next((how for word, how in QUANTIZED if word in plain), None)
    base = re.sub(r"-(instruct-)?(quantized\..*|fp8(-dynamic)?)$", "", plain)
    fields = next((changed for start, changed in FIELDS.items() if base.startswith(start)), {})
    if composite := next((config for start, config in COMPOSITE.items() if base.startswith(start)), None):
        return load_model(plain, {**composite, **_quantized(scheme)})
    if base.startswith("gemma-3-") and "-it" in base and not base.startswith(("gemma-3-1b", "gemma-3-270m")):
        text = find(f"{base.removesuffix('-it')}-text").raw
        return load_model(plain, {"model_type": "gemma3", "text_config": text, "vision_config": SIGLIP})
    stem = re.sub(r"-(instruct|it|hf|chat)(-v0\.\d|-\d{4})?(-hf)?$", "", base)
    near = sorted((one for one in presets.names() if one.startswith(stem)), key=len)
    spelled = spellings.preset(name)
    names = [preset for start, preset in PRESETS.items() if base.startswith(start)]
    names += [one for one in (base, stem) if one in near] + ([] if spelled is None else [spelled.name]) + near
    found = next(iter(names), name)
    loaded = find(found, ask_hub=False)
    if not fields and scheme is None:
        return loaded
    return load_model(plain, {**loaded.raw, **fields, **_quantized(scheme)})


def _quantized(scheme: Mapping[str, Any] | None) -> dict[str, Any]:
    if scheme is None:
        return {}
    groups = {"group_0": {"targets": ["Linear"], "weights": dict(scheme)}}
    packed = "pack" if scheme["num_bits"] == 4 else scheme["type"]
    method = {"quant_method": "compressed-tensors", "format": f"{packed}-quantized", "config_groups": groups}
    return {"quantization_config": {**method, "ignore": ["lm_head", "re:.*vision.*", "re:.*multi_modal.*"]}}


def launch(row: Row) -> Launch:
    """The launch of a row. Raises TfacctError."""
    loaded = model(row["model"])
    version = row["version"].lstrip("~").partition("-")
    profile = profile_of("vllm", (version[2] and f"0.{version[2].split('.')[-1]}") or version[0])
    named = row["device"] if row["device"] in devices.paths() else OLDER if row["cublas_mib"] == "8.125" else NEWER
    given = {"float32": "fp32", "float16": "fp16"}.get(row["dtype"])
    if row["quant"] == "fp8" and not loaded.quantized:
        given = "fp8"
    flags = Flags(
        max_model_len=_number(row["max_model_len"]),
        max_num_batched_tokens=_number(row["batched_tokens"]),
        max_num_seqs=_number(row["max_seqs"]),
        gpu_memory_utilization=float(row["utilization"]) if row["utilization"] else None,
        dtype=given,
        kv_dtype=None if row["kv_dtype"] == "auto" else row["kv_dtype"],
        tp=int(row["tp"]),
        pp=int(row["pp"]),
        enforce_eager=row["graphs"] in ("eager", "v0"),
        block_size=None if loaded.architecture.having(Mixer) else _number(row["block"]),
        total_memory=int(float(row["total_gib"] or UNKNOWN_GIB) * GIB),
    )
    if row["sampler"]:
        kinds = dict.fromkeys(("sampler", "v2_sampler"), row["sampler"])
        profile = {**profile, **kinds}
    return Launch(profile, loaded, devices.load(named), flags)


def minor(version: str) -> int:
    """Minor version. If it was inferred as a range, the last one.

    >>> minor("0.19.0"), minor("~0.11-0.16")
    (19, 16)
    """
    return int(version.rpartition("-")[2].lstrip("~").split(".")[1])


def _number(text: str) -> int | None:
    return int(text) if text else None


class Error(NamedTuple):
    """Error of a term of a row, in GiB or as a share."""

    row: Row
    term: str
    found: float
    printed: float

    @property
    def off(self) -> float:
        """The distance from the printed figure."""
        return abs(self.found - self.printed) / (1 if self.term in GIB_LIMITS else self.printed)

    @property
    def measured(self) -> bool:
        """True for the versions with a stated error."""
        return minor(self.row["version"]) in MEASURED


def errors(row: Row) -> Iterator[Error]:
    """Errors of the terms of a row. Raises TfacctError for a term without a formula."""
    can, start = row["can_score"].split(), launch(row)
    number = int(row["rank"][2:]) + 1 if row["rank"].startswith("PP") else 1
    stages = {first: models for first, *models in vllm.stages(start)}
    if "peak" in can:
        found = sum(vllm.peak(start, first=number == 1, last=number == start.flags.pp).values())
        yield Error(row, "peak", found / GIB, float(row["peak_gib"]))
    if "layout" in can:
        pages = vllm.pages(start, stages[number][0], int(float(row["pool_gib"]) * GIB))
        concurrency = pages.concurrency(start.length)
        tokens = printed_tokens(start.profile, pages.tokens, concurrency, start.length)
        yield Error(row, "layout", tokens, float(row["kv_tokens"]))
        if row["concurrency"]:
            yield Error(row, "concurrency", concurrency, float(row["concurrency"]))
    if "weights" in can:
        yield Error(row, "weights", sum(weights(start, stages[number][1]).values()) / GIB, float(row["weights_gib"]))
    if "pool" in can:
        least = vllm.start(start)
        if least.measured:
            yield Error(row, "pool", least.pool / GIB, float(row["pool_gib"]))
            if "tokens" in can:
                yield Error(row, "tokens", least.tokens, float(row["kv_tokens"]))


def excepted(row: Row) -> dict[str, str]:
    """Terms of a row whose errors may exceed the limit, and why."""
    name = row["model"].lower().rpartition("/")[2]
    found: dict[str, str] = {}
    for (start, terms), why in EXCEPTIONS.items():
        start, _, at = start.partition("@")
        if start in name and at in ("", row["rank"], row["version"]):
            found |= dict.fromkeys(terms.split(), why)
    return found


def main(folder: Path) -> int:
    """Print the table of errors, and the errors above their limits. Returns the exit code."""
    rows = [
        row for row in csv.DictReader((folder / "startups.csv").open()) if row["engine"] == "vllm" and row["can_score"]
    ]
    every: list[Error] = []
    broken, used = [], set()
    for row in rows:
        allowed = excepted(row)
        try:
            for one in errors(row):
                if one.off <= LIMITS[one.term]:
                    every.append(one)
                elif one.term in allowed:
                    used.add((one.term, allowed[one.term]))
                else:
                    every.append(one)
                    broken.append(
                        f"{row['id']} {row['model']}: {one.term} {one.found:,.3f}, printed {one.printed:,.3f}"
                    )
        except NotFoundError:
            print(f"not compared: {row['id']} {row['model']}: no config")
        except TfacctError as error:
            used |= set(allowed.items())
            if not allowed:
                broken.append(f"{row['id']} {row['model']}: {error.message}")
    broken += table(every)
    for term, why in sorted(used):
        print(f"not included: {term}: {why}")
    broken += [f"exception no longer needed: {term}: {why}" for term, why in needed() - used]
    broken += blocks(folder / "aligned_blocks.csv")
    for line in broken:
        print(f"BROKEN {line}")
    return 1 if broken else 0


def needed() -> set[tuple[str, str]]:
    """Exceptions, by term and reason."""
    return {(term, why) for (_, terms), why in EXCEPTIONS.items() for term in terms.split()}


def table(every: Sequence[Error]) -> list[str]:
    """Print median, p90 and worst error of each term. Returns how those of the tokens differ from the stated errors."""
    print(f"{'':34} {'rows':>5} {'median':>8} {'p90':>8} {'worst':>8}")
    broken = []
    for name, some in (("0.12 to 0.19", [one for one in every if one.measured]), ("all versions", list(every))):
        for term in LIMITS:
            off = sorted(one.off for one in some if one.term == term)
            if not off:
                continue
            p90 = off[min(len(off) - 1, int(0.9 * len(off)))]
            numbers = (median(off), p90, off[-1])
            texts = [f"{x:8.3f}" if term in GIB_LIMITS else f"{100 * x:7.3f}%" for x in numbers]
            unit = ", GiB" if term in GIB_LIMITS else ""
            print(f"{f'{name}: {term}{unit}':34} {len(off):5} {' '.join(texts)}")
            if term == "tokens" and name != "all versions":
                measured = {"starts": len(off), "median": numbers[0], "p90": p90, "worst": off[-1]}
                broken += [
                    f"tokens, {what}: {found:.5f}, stated {STATED[what]}"
                    for what, found in measured.items()
                    if round(found, 5) != STATED[what]
                ]
    return broken


def blocks(file: Path) -> list[str]:
    """Print how many block sizes of hybrid models equal the log. Returns those that differ."""
    rows = list(csv.DictReader(file.open()))
    wrong = []
    for row in rows:
        found = aligned_block(*(int(row[name]) for name in ("state_bytes", "token_bytes", "alignment")))
        if found != int(row["block"]):
            wrong.append(f"block of {row['model']}: {found}, printed {row['block']}")
    print(f"block size of hybrid models: {len(rows) - len(wrong)} of {len(rows)} equal the log")
    return wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    if not (folder / "startups.csv").is_file():
        print(f"no start-up logs in {folder}: the errors of `tfacct engine` are not checked")
        sys.exit(0)
    sys.exit(main(folder))
