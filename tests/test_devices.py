"""Devices as data: their files, their check, a user's own, and budgets by name."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tfacct
from tests.conftest import Ran
from tfacct import load
from tfacct.base.errors import TfacctError
from tfacct.loading import devices

H100 = 81_090 * 2**20
"""Bytes that torch reports of an H100 SXM: 79.19 GiB in public logs. nvidia-smi reports 81,559 MiB."""
TORCH = {
    "h100-sxm": (81_039, 81_152),
    "h200-sxm": (143_156, 143_156),
    "b200-hgx": (182_631, 182_642),
    "l40s": (45_457, 45_589),
    "rtx-a6000": (48_569, 48_676),
    "t4": (14_910, 15_110),
    "rtx-4090": (24_074, 24_248),
    "rtx-5090": (32_094, 32_123),
    "rtx-pro-6000": (97_250, 97_290),
    "gh200-96gb": (97_157, 97_157),
    "h20": (97_285, 97_285),
    "v100-pcie-32gb": (32_501, 32_510),
    "mi250x": (65_520, 65_520),
}
"""The least and the most MiB of `torch.cuda.get_device_properties(0).total_memory` in public logs."""
NVIDIA_SMI = {"h100-sxm": 81_559, "h200-sxm": 143_771, "b200-hgx": 183_359, "l40s": 46_068, "t4": 15_360}
"""MiB of memory in the header of nvidia-smi."""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder of the user's devices."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "tfacct" / "devices"
    folder.mkdir(parents=True)
    devices.paths.cache_clear()
    yield folder
    devices.paths.cache_clear()


@pytest.mark.parametrize("name", sorted({path.stem for path in devices.folder().glob("*.toml")} - {"cpu"}))
def test_every_device_is_whole_and_meets_its_check(name: str) -> None:
    """Units · FLOPs per clock · clock within 1.2 % of the peak, where a maker says them."""
    device = devices.load(name)
    assert device.kind in ("vendor", "secondary", "unread") and device.bandwidth > 10**11
    assert (device.read is None) == (device.kind == "unread")
    assert device.memory_from in devices.MEMORY and 10**10 < device.memory < 10**12
    totals = device.totals
    assert totals.torch_seen if totals.torch is not None else totals.board is not None
    if totals.torch is not None and totals.board is not None:  # a driver and ECC take up to 3 %
        assert 0.968 < totals.torch / totals.board <= 1
    if device.check is not None:
        assert abs(device.peak[device.check.dtype] / device.check.peak - 1) < 0.012


def test_the_devices_that_are_asked_for_most() -> None:
    names = set(devices.paths())
    assert (
        len(names) >= 40
        and {"h100-sxm", "h200-sxm", "b200-hgx", "mi300x", "rtx-4090", "tpu-v5e", "l40s", "t4"} <= names
    )
    assert devices.load("h100-sxm").memory == H100
    checks = [check for name in names if (check := devices.load(name).check)]
    assert sum(not check.circular for check in checks) >= 20


@pytest.mark.parametrize("name", TORCH)
def test_memory_is_what_torch_reports(name: str, run: Callable[..., Ran]) -> None:
    """Both totals of a card: torch's, which every budget uses, and the board's."""
    (row,) = json.loads(run("devices", name, "--json").out)["rows"]
    least, most = (end * 2**20 for end in TORCH[name])
    assert least <= row["memory_bytes"] <= most and row["memory_from"] == "torch"
    assert (
        row["torch_bytes"] == row["memory_bytes"] == load("gpt2").memory(fit=name, use=1, reserve=0).fit["budget_bytes"]
    )
    assert name not in NVIDIA_SMI or row["board_bytes"] == NVIDIA_SMI[name] * 2**20


def test_every_estimate_says_whose_memory_it_uses(run: Callable[..., Ran]) -> None:
    fit = run("fit", "gpt2", "--on", "h100-sxm", "--on", "gb200", "--on", "m3-max")
    said = " ".join(fit.out.split())
    assert "Memory: torch's total of the card. gb200: the board's memory; torch reports 0.4–3% less. m3-max: as" in said
    facts = json.loads(run("fit", "gpt2", "--on", "h100-sxm", "--on", "gb200", "--json").out)["models"][0]["lines"]
    assert [(line["memory_bytes"] // 2**20, line["memory_from"]) for line in facts] == [
        (81_090, "torch"),
        (189_471, "nvidia-smi"),
    ]
    serve = run("serve", "llama-3.1-8b", "--on", "h100-sxm", "--prompt", "1k", "--new", "100").out
    assert "0.9 of 79.2 GiB (torch's total of the card)" in " ".join(serve.split())
    large = run("time", "llama-3.1-70b", "--on", "h100-sxm").err
    assert "do not fit into each h100-sxm's 79.2 GiB (torch's total of the card)" in " ".join(large.split())


@pytest.mark.parametrize(
    ("lines", "torch", "board", "origin"),
    [
        ("bytes = 24_000_000_000", 24 * 10**9, None, "torch"),
        ('bytes = 24_000_000_000\nbytes_from = "framework"', 24 * 10**9, None, "torch"),
        ('bytes = 24_000_000_000\nbytes_from = "marketed"', None, 24 * 10**9, "marketed"),
        ("board_bytes = 24_000_000_000", None, 24 * 10**9, "nvidia-smi"),
    ],
)
def test_older_files_are_still_read(own: Path, lines: str, torch: int | None, board: int | None, origin: str) -> None:
    """The template of 0.1 asked for `bytes`, as a framework reports them."""
    head, rest = devices.TEMPLATE.split("torch_bytes")[0], devices.TEMPLATE[devices.TEMPLATE.index("bandwidth") :]
    (own / "mine.toml").write_text(f"{head}{lines}\n{rest}")
    mine = devices.load("mine")
    assert (mine.totals.torch, mine.totals.board, mine.memory_from) == (torch, board, origin)
    assert mine.memory == 24 * 10**9


def test_a_budget_by_name() -> None:
    one, two = (load("llama-3.1-8b").memory(ctx=8192, fit=fit) for fit in ("h100-sxm", "2xh100-sxm"))
    usable = H100 * 9 // 10 - 2 * 10**9
    assert one.fit["budget_bytes"] == two.fit["budget_bytes"] == usable and two.fit["devices"] == two.tp == 2
    assert one.fit["memory_bytes"] == H100 and one.fit["memory_from"] == "torch"
    assert one.fit["largest_batch"] == (usable - 2 * 8_030_261_248) // (8192 * 131_072)
    share = load("llama-3.1-8b").memory(ctx=8192, fit="h100-sxm", use=0.8, reserve="1GB")
    assert share.fit["budget_bytes"] == H100 * 8 // 10 - 10**9
    assert load("llama-3.2-1b").train(ctx=1024, fit="H100-SXM").fit["budget_bytes"] == H100 - 2 * 10**9  # type: ignore[index]


def test_the_card_is_said(run: Callable[..., Ran]) -> None:
    said = " ".join(run("memory", "llama-3.1-8b", "--fit", "2xh100-sxm").out.split())
    assert "Fits on 2 × h100-sxm (tp=2):" in said
    assert "Usable: 69.4 GiB of each h100-sxm: 0.9 of 79.2 GiB (torch's total of the card), less 2.00 GB for" in said
    one = " ".join(run("memory", "llama-3.1-8b", "--fit", "h100-sxm").out.split())
    assert "Fits on h100-sxm:" in one and "Usable: 69.4 GiB of h100-sxm: 0.9 of 79.2 GiB (torch's total" in one
    several = " ".join(run("memory", "gpt2", "--batch", "1,2", "--fit", "tpu-v5e").out.split())
    assert "0.9 of 14.9 GiB (as marketed, in decimal gigabytes; torch's total is not known), less" in several
    board = " ".join(run("memory", "gpt2", "--fit", "gb200").out.split())
    assert "0.9 of 185 GiB (the board's memory; torch reports 0.4–3% less), less" in board
    trained = " ".join(run("train", "llama-3.2-1b", "--ctx", "1k", "--fit", "h100-sxm").out.split())
    assert "Usable: 77.3 GiB of h100-sxm: all of 79.2 GiB (torch's total of the card), less 2.00 GB" in trained


def test_the_list_and_one(run: Callable[..., Ran]) -> None:
    rows = json.loads(run("devices", "--json").out)["rows"]
    assert len(rows) == len(devices.paths())
    assert next(row for row in rows if row["device"] == "h100-sxm")["bf16"] == 989_400_000_000_000
    one = " ".join(run("devices", "h100-sxm").out.split())
    assert "bf16 is 1.000 of units · FLOPs per clock · clock (by the maker's clock)" in one and "2026-11-21" in one
    assert "circular" in run("devices", "b200-hgx").out
    assert tfacct.devices("t4").title == "T4"


@pytest.mark.parametrize("name", ["h100-sxm", "gb200", "m3-max"])
def test_one_device_is_the_row_of_all(name: str, run: Callable[..., Ran]) -> None:
    every = json.loads(run("devices", "--json").out)["rows"]
    (one,) = json.loads(run("devices", name, "--json").out)["rows"]
    assert one == next(row for row in every if row["device"] == name)
    assert run("devices", name, "--csv").out.splitlines()[0].startswith("device,bf16,")


@pytest.mark.parametrize("other", ["--json", "--csv", "--markdown", "--exact", "--verbose", "--html=x.html"])
def test_the_template_takes_no_other_option(other: str, run: Callable[..., Ran]) -> None:
    ran = run("devices", "--template", other)
    assert (ran.code, ran.out) == (2, "") and f"--template does not go with {other.partition('=')[0]}" in ran.err
    assert "--template does not go with NAME" in run("devices", "t4", "--template").err


def test_an_unknown_name_gets_the_nearest(run: Callable[..., Ran]) -> None:
    ran = run("memory", "gpt2", "--fit", "h100")
    assert ran.code == 2 and "did you mean h100-nvl, h100-pcie or h100-sxm?" in " ".join(ran.err.split())
    assert "--template" in run("devices", "rtx4090").err and "rtx-4090" in run("devices", "rtx4090").err
    for wrong in ("0xh100-sxm", "-2xh100-sxm", "2x", "2 h100-sxm", "h100-sxm;rm", "x" * 300):
        ran = run("memory", "gpt2", "--fit", wrong)
        assert ran.code == 2 and "Traceback" not in ran.err


def test_a_users_file_wins(own: Path, run: Callable[..., Ran]) -> None:
    (own / "my-card.toml").write_text(devices.TEMPLATE)
    (own / "h100-sxm.toml").write_text(devices.TEMPLATE.replace("25_393_364_992", "11_000_000_000"))
    assert devices.load("my-card").memory == 25_393_364_992
    assert load("gpt2").memory(fit="h100-sxm").fit["memory_bytes"] == 11_000_000_000
    assert load("gpt2").memory(fit=str(own / "my-card.toml")).fit["memory_bytes"] == 25_393_364_992
    assert run("devices", "--template").out == devices.TEMPLATE


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("25_393_364_992", '"24 GB"'), "must be a number above 0, not '24 GB'\nin bytes, such as 25_757_220_864"),
        (("25_393_364_992", "-1"), "[memory] torch_bytes must be a number"),
        (("25_393_364_992", "nan"), "[memory] torch_bytes must be a number"),
        (("board_bytes", "bytes"), "[memory] bytes is an older name of torch_bytes\nleave bytes out"),
        (("25_757_220_864", "24_000_000_000"), "torch_bytes 25,393,364,992 is more than board_bytes 24,000,000,000"),
        (("board_bytes", 'board_from = "box"\nboard_bytes'), "board_from must be one of nvidia-smi, maker, marketed"),
        (("board_bytes", "torch_range = [1_000_000, 2_000_000]\nboard_bytes"), "torch_bytes is not in torch_range"),
        (("board_bytes", "torch_range = 3\nboard_bytes"), "torch_range must be the least and the most bytes"),
        (("165.2e12", "1e40"), "[peak] bf16 must be a number"),
        (("bf16 =", "bf17 ="), "[peak] bf17 is no dtype"),
        (("[peak]", "[peaks]"), "peaks is not a key of a device's file\ndid you mean peak?"),
        (("bf16 = 165.2e12\nfp8 = 330.3e12", ""), "[peak] is missing"),
        (("bandwidth = 1.008e12", ""), "[memory] bandwidth is missing"),
        (("1.008e12", "1008"), "[memory] bandwidth is 1,008 bytes per second, too few for a device\nsuch as 1.008e12"),
        (("one_way", "oneway"), "[link] oneway is not a key of a device's file\ndid you mean one_way?"),
        (('vendor = "ACME"', 'colour = "red"'), "colour is not a key of a device's file"),
        (('kind = "own"', 'kind = "mine"'), "kind must be one of"),
        (('urls = ["https://example.org/my-card"]', "urls = 3"), "list of addresses"),
        (('name = "My card"', "name = 3"), "name must be text"),
        (("[link]", "[[link]]"), "[link] must be a table"),
    ],
)
def test_a_broken_file_is_refused_by_name(own: Path, change: tuple[str, str], says: str) -> None:
    (own / "mine.toml").write_text(devices.TEMPLATE.replace(*change))
    with pytest.raises(TfacctError) as raised:
        devices.load("mine")
    assert says in str(raised.value)
