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

H100 = 81_559 * 2**20
"""Bytes that nvidia-smi reports of an H100 SXM."""


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
    assert device.memory_from in ("framework", "marketed") and 10**10 < device.memory < 10**12
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


def test_a_budget_by_name() -> None:
    one, two = (load("llama-3.1-8b").memory(ctx=8192, fit=fit) for fit in ("h100-sxm", "2xh100-sxm"))
    assert one.fit["budget_bytes"] == H100 and two.fit["budget_bytes"] == 2 * H100
    assert one.fit["largest_batch"] == (H100 - 2 * 8_030_261_248) // (8192 * 131_072)
    share = load("llama-3.1-8b").memory(ctx=8192, fit="h100-sxm", use=0.9)
    assert share.fit["budget_bytes"] == H100 * 9 // 10
    assert load("llama-3.2-1b").train(ctx=1024, fit="H100-SXM").fit["budget_bytes"] == H100  # type: ignore[index]


def test_the_card_is_said(run: Callable[..., Ran]) -> None:
    said = " ".join(run("memory", "llama-3.1-8b", "--fit", "2xh100-sxm").out.split())
    assert "The budget is the memory of 2 × h100-sxm, 85,520,809,984 bytes as a framework reports it each" in said
    several = " ".join(run("memory", "gpt2", "--batch", "1,2", "--fit", "tpu-v5e").out.split())
    assert "The budget is tpu-v5e's memory: 16,000,000,000 bytes as marketed." in several
    assert "h100-sxm's memory" in " ".join(run("train", "llama-3.2-1b", "--ctx", "1k", "--fit", "h100-sxm").out.split())


def test_the_list_and_one(run: Callable[..., Ran]) -> None:
    rows = json.loads(run("devices", "--json").out)["rows"]
    assert len(rows) == len(devices.paths())
    assert next(row for row in rows if row["device"] == "h100-sxm")["bf16"] == 989_400_000_000_000
    one = " ".join(run("devices", "h100-sxm").out.split())
    assert "bf16 is 1.000 of units · FLOPs per clock · clock (by the maker's clock)" in one and "2026-11-21" in one
    assert "circular" in run("devices", "b200-hgx").out
    assert tfacct.devices("t4").title == "T4"


def test_an_unknown_name_gets_the_nearest(run: Callable[..., Ran]) -> None:
    ran = run("memory", "gpt2", "--fit", "h100")
    assert ran.code == 2 and "did you mean h100-nvl, h100-pcie or h100-sxm?" in " ".join(ran.err.split())
    assert "--template" in run("devices", "rtx4090").err and "rtx-4090" in run("devices", "rtx4090").err
    for wrong in ("0xh100-sxm", "-2xh100-sxm", "2x", "2 h100-sxm", "h100-sxm;rm", "x" * 300):
        ran = run("memory", "gpt2", "--fit", wrong)
        assert ran.code == 2 and "Traceback" not in ran.err


def test_a_users_file_wins(own: Path, run: Callable[..., Ran]) -> None:
    (own / "my-card.toml").write_text(devices.TEMPLATE)
    (own / "h100-sxm.toml").write_text(devices.TEMPLATE.replace("25_757_220_864", "11_000_000_000"))
    assert devices.load("my-card").memory == 25_757_220_864
    assert load("gpt2").memory(fit="h100-sxm").fit["budget_bytes"] == 11_000_000_000
    assert load("gpt2").memory(fit=str(own / "my-card.toml")).fit["budget_bytes"] == 25_757_220_864
    assert run("devices", "--template").out == devices.TEMPLATE


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("25_757_220_864", '"24 GB"'), "must be a number above 0, not '24 GB'\nin bytes, such as 25_757_220_864"),
        (("25_757_220_864", "-1"), "[memory] bytes must be a number"),
        (("25_757_220_864", "nan"), "[memory] bytes must be a number"),
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
