"""Device files: their figures, their checks, a user's own files, and budgets by name. Kind: golden, refusal."""

import json
import tomllib
from collections.abc import Iterator
from math import log2
from pathlib import Path

import pytest

import tfacct
from tests.helpers.cli import Run
from tfacct import load
from tfacct.base.errors import TfacctError
from tfacct.loading import devices

H100 = 81_090 * 2**20
"""Bytes that torch reports of an H100 SXM: 79.19 GiB in public logs. nvidia-smi reports 81,559 MiB."""
SEEN = tomllib.loads(Path(__file__).with_name("devices.toml").read_text(encoding="utf-8"))
"""Figures of devices from second sources, and names as people write them."""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder of the user's devices."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "tfacct" / "devices"
    folder.mkdir(parents=True)
    for cached in (devices.paths, devices.index):
        cached.cache_clear()
    yield folder
    for cached in (devices.paths, devices.index):
        cached.cache_clear()


@pytest.mark.parametrize("name", sorted({path.stem for path in devices.folder().glob("*.toml")} - {"cpu"}))
def test_every_device_is_whole_and_meets_its_check(name: str) -> None:
    """Units · FLOPs per clock · clock are within 1.2 % of the peak, where a maker publishes them. A figure that is 10 %
    off agrees with no second source."""
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
    assert name in SEEN, f"tests/loading/devices.toml has no figures of {name} from outside"
    seen, links = SEEN[name], device.links
    known = [total for total in (totals.torch, totals.board) if total is not None]
    assert known and all(0.915 <= total / (seen["sold_gb"] * 2**30) <= 1.0 for total in known)
    if device.vendor == "Apple":  # a Mac of 96 GB lets its GPU use 73,728 MiB, as llama.cpp logs
        assert totals.board == seen["sold_gb"] * 2**30 and device.gpu_share * 96 * 1024 == 73_728
    if "bus" in seen:
        bits, rate = seen["bus"]
        assert device.bandwidth == pytest.approx(bits / 8 * rate * 1e9, rel=0.04)
    if "links" in seen:
        number, each = seen["links"]
        assert links.one_way == pytest.approx(number * each * 1e9, rel=0.005)
    else:
        assert links.one_way is None or device.vendor == "Google"
    assert links.pcie in (None, 16 * 10**9, 32 * 10**9, 64 * 10**9, 128 * 10**9)  # PCIe 3.0 to 6.0, 16 lanes
    cards, gigabits = seen.get("network", (None, None))
    assert links.network == (None if cards is None else cards * gigabits * 10**9 // 8)
    if device.check is not None:
        for dtype, peak in device.peak.items():  # a unit does a power of two of FLOPs for each clock
            if dtype not in seen.get("uneven", ()):
                ratio = peak / device.check.peak
                assert ratio == pytest.approx(2 ** round(log2(ratio)), rel=0.045), dtype


def test_the_devices_that_are_asked_for_most() -> None:
    names = set(devices.paths())
    assert {"h100-sxm", "h200-sxm", "b200-hgx", "mi300x", "rtx-4090", "tpu-v5e", "l40s", "t4"} <= names
    assert len(names) >= 40
    assert devices.load("h100-sxm").memory == H100
    checks = [check for name in names if (check := devices.load(name).check)]
    assert sum(not check.circular for check in checks) >= 20


@pytest.mark.parametrize("name", [name for name, seen in SEEN.items() if "torch_mib" in seen])
def test_memory_is_what_torch_reports(name: str, run: Run) -> None:
    """Both totals of a card: torch's, which every budget uses, and the board's."""
    (row,) = run("devices", name, "--json").document["rows"]
    least, most = (end * 2**20 for end in SEEN[name]["torch_mib"])
    assert least <= row["memory_bytes"] <= most and row["memory_from"] == "torch"
    assert (
        row["torch_bytes"] == row["memory_bytes"] == load("gpt2").memory(on=name, use=1, reserve=0).fit["budget_bytes"]
    )
    assert row["torch_least_bytes"] >= least and row["torch_most_bytes"] <= most and row["torch_seen"]
    assert row["board_bytes"] == SEEN[name].get("nvidia_smi_mib", row["board_bytes"] / 2**20) * 2**20


@pytest.fixture
def board(own: Path) -> str:
    """A card of which nvidia-smi's total alone is known: 24,000 MiB."""
    (own / "board.toml").write_text(
        devices.TEMPLATE.replace("torch_bytes = ", "# ").replace("25_757_220_864", str(24_000 * 2**20))
    )
    return "board"


def test_every_estimate_names_the_source_of_its_memory(board: str, run: Run) -> None:
    fit = load("gpt2").fit(on=["h100-sxm", board, "m3-max"])
    text = " ".join(fit.notes)
    assert "Memory: torch's total of the card. board: the board's memory; torch reports 0.4–3% less." in text
    assert "m3-max: the manufacturer's" in text
    facts = fit.lines[:2]
    sources = [(line["memory_bytes"] // 2**20, line["memory_from"]) for line in facts]
    assert sources == [(81_090, "torch"), (24_000, "nvidia-smi")]
    known = run("memory", "gpt2", "--on", board, "-v").out_line
    assert "0.9 of 23.4 GiB (the board's memory; torch reports 0.4–3% less), less" in known


@pytest.mark.parametrize(
    ("lines", "torch", "board", "origin"),
    [
        ("bytes = 24_000_000_000", 24 * 10**9, None, "torch"),
        ('bytes = 24_000_000_000\nbytes_from = "framework"', 24 * 10**9, None, "torch"),
        ('bytes = 24_000_000_000\nbytes_from = "marketed"', None, 24 * 10**9, "marketed"),
        ("board_bytes = 24_000_000_000", None, 24 * 10**9, "own"),
    ],
)
def test_older_files_are_still_read(own: Path, lines: str, torch: int | None, board: int | None, origin: str) -> None:
    """The template of 0.1 asked for `bytes`, as a framework reports them."""
    head, rest = devices.TEMPLATE.split("torch_bytes")[0], devices.TEMPLATE[devices.TEMPLATE.index("bandwidth") :]
    (own / "mine.toml").write_text(f"{head}{lines}\n{rest}")
    mine = devices.load("mine")
    assert (mine.totals.torch, mine.totals.board, mine.memory_from) == (torch, board, origin)
    assert mine.memory == 24 * 10**9


def test_a_file_in_this_folder_is_distinguished_from_a_name(tmp_path: Path, monkeypatch, run: Run) -> None:
    """A data sheet says 96 GB: 96 · 10⁹ bytes."""
    monkeypatch.chdir(tmp_path)
    Path("x96.toml").write_text("[memory]\nboard_bytes = 96e9\nbandwidth = 1.8e12\n[peak]\nbf16 = 200e12\n")
    for asked in ("devices x96", "memory gpt2 --on x96", "time gpt2 --on x96"):
        assert run(*asked.split()).err.endswith("hint: x96.toml is a device file: give its name with the ending\n")
    ran = run("devices", "x96.toml", columns=120)
    assert "96,000,000,000 bytes (91,553 MiB), from the device file" in ran.out and "nvidia-smi" not in ran.out
    (row,) = run("devices", "x96.toml", "--json").document["rows"]
    assert row["memory_from"] == row["board_from"] == "own"


def test_a_budget_by_name() -> None:
    one, two = (load("llama-3.1-8b").memory(ctx=8192, on=fit) for fit in ("h100-sxm", "2xh100-sxm"))
    usable = H100 * 9 // 10 - 2 * 10**9
    assert one.fit["budget_bytes"] == two.fit["budget_bytes"] == usable and two.fit["devices"] == two.tp == 2
    assert one.fit["memory_bytes"] == H100 and one.fit["memory_from"] == "torch"
    assert one.fit["largest_batch"] == (usable - 2 * 8_030_261_248) // (8192 * 131_072)
    share = load("llama-3.1-8b").memory(ctx=8192, on="h100-sxm", use=0.8, reserve="1GB")
    assert share.fit["budget_bytes"] == H100 * 8 // 10 - 10**9
    assert load("llama-3.2-1b").train(ctx=1024, on="H100-SXM").fit["budget_bytes"] == H100 - 2 * 10**9  # type: ignore[index]


@pytest.mark.parametrize("name", ["h100-sxm", "tpu-v5p", "m3-max"])
def test_one_device_is_the_row_of_all(name: str, run: Run) -> None:
    every = run("devices", "--json").document["rows"]
    assert len(every) == len(devices.paths()) and tfacct.devices("t4").title == "T4"
    (one,) = run("devices", name, "--json").document["rows"]
    assert one == next(row for row in every if row["device"] == name)
    assert run("devices", name, "--csv").out.splitlines()[0].startswith("device,bf16,")


@pytest.mark.parametrize("name", [name for name, seen in SEEN.items() if "written" in seen])
def test_a_device_as_people_write_it(name: str) -> None:
    for typed in SEEN[name]["written"]:
        assert devices.load(typed).id == name
        for several in (f"8x{typed}", f"8 x {typed}", f"8×{typed}", f"8X{typed}"):
            assert devices.several("--on", several) == (8, devices.load(name))


def test_an_alias_is_one_devices_and_no_others_name() -> None:
    """Also none that is read as a size or as a number of devices."""
    owners: dict[str, list[str]] = {}
    for name in devices.paths():
        for known in {name, *devices.load(name).aliases}:
            owners.setdefault(devices.fold(known), []).append(name)
    assert {known: names for known, names in owners.items() if len(names) > 1} == {}
    assert len(owners) > len(devices.paths()) + 40
    assert all(devices.load(known).id == owner for known, (owner,) in owners.items())


def test_an_unknown_name_gets_those_that_begin_alike(run: Run) -> None:
    """First the device of the plain name, then by year."""
    ran = run("memory", "gpt2", "--on", "h1000")
    assert ran.err.startswith("error: unknown device 'h1000'. Did you mean h100-sxm, h100-pcie or h100-nvl?\n")
    for card in ("4060", "2xrtx4060", "rtx 4060"):
        ran = run("memory", "gpt2", "--on", card)
        assert "Did you mean rtx-4090?" in ran.err and "--on 12GB gives a size of memory instead of a name" in ran.err
    timed = run("time", "gpt2", "--on", "4060").err  # which needs a speed
    assert "how much memory" not in timed and "`tfacct memory` and `train` also take a size: --on 12GB" in timed
    assert "Did you mean rtx-4090?" in run("devices", "rtx-4o90").err
    assert "Did you mean h200-sxm?" in run("devices", "nh200").err
    for asked in ("devices zzz", "memory gpt2 --on zzz", "time gpt2 --on zzz"):
        hint = run(*asked.split()).err
        assert "`tfacct devices` lists all; `tfacct devices --template` prints a device file to fill in" in hint
    for wrong in ("0xh100-sxm", "-2xh100-sxm", "2x", "2 h100-sxm", "h100-sxm;rm", "x" * 300, "24", "2x3xh100"):
        ran = run("memory", "gpt2", "--on", wrong)
        assert ran.code == 2 and ran.err.startswith("error: ") and "Traceback" not in ran.err


def test_how_many_of_a_device() -> None:
    for text, number in {"16kxh100": 16_384, "1e3xh100": 1000, "1,000 × H100": 1000, "h100": 1}.items():
        assert devices.several("--on", text) == (number, devices.load("h100-sxm"))
    for text in ("1.5xh100", "1.5kxh100", "1.2.3xh100", "9999999999999999999xh100", "2000001xh100"):
        with pytest.raises(TfacctError, match=r"^(the number in )?--on "):
            devices.several("--on", text)


def test_all_devices_or_some() -> None:
    model = load("llama-3.2-1b")
    every = model.fit().lines
    assert len(every) == len(devices.for_sale()) and every == model.fit(on="All").lines
    for two in ("h100,RTX 4090", ["h100", "RTX 4090"]):
        assert [line["device"] for line in model.fit(on=two).lines] == ["h100-sxm", "rtx-4090"]
    with pytest.raises(TfacctError, match="a list in on has devices, not sizes"):
        model.fit(on="h100,2x24GB")


def test_a_users_alias(own: Path) -> None:
    mine = devices.TEMPLATE.replace("aliases = []", 'aliases = ["Card 9", "h100"]')
    (own / "my-card.toml").write_text(mine)
    assert {devices.load(name).id for name in ("card9", "CARD_9", "my card", "h100")} == {"my-card"}
    assert devices.load("h100-sxm").id == "h100-sxm"
    (own / "other.toml").write_text(mine)
    devices.paths.cache_clear()
    devices.index.cache_clear()
    with pytest.raises(TfacctError, match="card9 is an alias of my-card, other"):
        devices.load("card9")
    (own / "other.toml").write_text("no = [TOML")
    devices.index.cache_clear()
    assert devices.load("card9").id == "my-card", "a broken file has no alias"


def test_a_users_file_wins(own: Path, run: Run) -> None:
    (own / "my-card.toml").write_text(devices.TEMPLATE)
    (own / "h100-sxm.toml").write_text(devices.TEMPLATE.replace("25_393_364_992", "11_000_000_000"))
    assert devices.load("my-card").memory == 25_393_364_992
    assert load("gpt2").memory(on="h100-sxm").fit["memory_bytes"] == 11_000_000_000
    assert load("gpt2").memory(on=str(own / "my-card.toml")).fit["memory_bytes"] == 25_393_364_992
    assert run("devices", "--template").out == devices.TEMPLATE


REFUSED = json.loads(Path(__file__).with_name("device_refusals.json").read_text(encoding="utf-8"))
"""Each: a text of the template, what is in its place, and words of the error."""


@pytest.mark.parametrize(("text", "other", "says"), REFUSED)
def test_a_broken_file_is_refused_by_name(own: Path, text: str, other: str, says: str) -> None:
    (own / "mine.toml").write_text(devices.TEMPLATE.replace(text, other))
    with pytest.raises(TfacctError) as raised:
        devices.load("mine")
    assert says in str(raised.value)
