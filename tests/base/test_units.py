"""Sizes are read and written with their units. Kind: golden, refusal."""

from fractions import Fraction

import pytest

from tfacct.base import units
from tfacct.base.errors import TfacctError
from tfacct.output.report import Column


@pytest.mark.parametrize(
    ("value", "si", "people", "binary", "decimal"),
    [
        (0, "0", "0", "0 B", "0 B"),
        (7, "7", "7", "7 B", "7 B"),
        (999, "999", "999", "999 B", "999 B"),
        (1000, "1.00 K", "1.00 K", "1,000 B", "1.00 KB"),
        (1023, "1.02 K", "1.02 K", "1,023 B", "1.02 KB"),
        (1024, "1.02 K", "1.02 K", "1.00 KiB", "1.02 KB"),
        (9_994, "9.99 K", "9.99 K", "9.76 KiB", "9.99 KB"),
        (9_996, "10.0 K", "10.0 K", "9.76 KiB", "10.0 KB"),
        (99_960, "100 K", "100 K", "97.6 KiB", "100 KB"),
        (999_499, "999 K", "999 K", "976 KiB", "999 KB"),
        (999_500, "1.00 M", "1.00 M", "976 KiB", "1.00 MB"),
        (1000 * 1024, "1.02 M", "1.02 M", "0.977 MiB", "1.02 MB"),
        # A half rounds to even; what rounds up to 1.00 of the next unit is written in that unit.
        (1_125, "1.12 K", "1.12 K", "1.10 KiB", "1.12 KB"),
        (1_135, "1.14 K", "1.14 K", "1.11 KiB", "1.14 KB"),
        (1020 * 1024, "1.04 M", "1.04 M", "0.996 MiB", "1.04 MB"),
        (1024**2 - 1, "1.05 M", "1.05 M", "1.00 MiB", "1.05 MB"),
        (7_615_616_512, "7.62 G", "7.62 B", "7.09 GiB", "7.62 GB"),
        (24 * 1024**3, "25.8 G", "25.8 B", "24.0 GiB", "25.8 GB"),
        (133_416_668_364_800, "133 T", "133 T", "121 TiB", "133 TB"),
        (10**36, "1,000,000 Q", "1,000,000,000,000,000,000,000 Q", "827,180,612,553 YiB", "1,000,000,000,000 YB"),
        (-1536, "-1.54 K", "-1.54 K", "-1.50 KiB", "-1.54 KB"),
    ],
)
def test_written(value: int, si: str, people: str, binary: str, decimal: str) -> None:
    assert units.si(value) == si
    assert units.people(value) == people
    assert units.binary(value) == binary
    assert units.decimal_bytes(value) == decimal


def test_large_integers_are_not_rounded_through_floats() -> None:
    """2⁵³ + 1 has no float; 9,995 followed by zeros rounds up whatever its length."""
    assert units.si(99949 * 10**40) == "999,490,000,000,000 Q"
    assert units.si(2**53 + 1) == "9.01 P"


@pytest.mark.parametrize(
    ("share", "printed"),
    [
        (Fraction(23, 80), "28.8%"),  # 28.75 %: a half, to even
        (Fraction(51, 80), "63.8%"),  # 63.75 %
        (Fraction(49, 80), "61.2%"),  # 61.25 %
        (Fraction(1, 2000), "0.0%"),  # 0.05 %
        (Fraction(3, 2000), "0.2%"),  # 0.15 %
        (Fraction(-23, 80), "-28.8%"),
        (Fraction(-1, 10**9), "0.0%"),
        (Fraction(1), "100.0%"),
        (Fraction(10**30), f"1{'0' * 32}.0%"),
        (0, "0.0%"),
        (0.5, "50.0%"),
    ],
)
def test_percentages(share: Fraction | float, printed: str) -> None:
    assert units.percent(share) == printed


def test_decimals() -> None:
    assert units.decimals(Fraction(2675, 1000), 2) == "2.68"  # the float 2.675 lies below
    assert units.decimals(Fraction(1125, 1000), 2) == "1.12"
    assert units.decimals(Fraction(-5, 4), 0) == "-1"


def test_a_column_of_shares_is_written_so() -> None:
    assert Column("share", "share", "share").text(Fraction(23, 80)) == "28.8%"
    assert Column("delta", "delta", "share", signed=True).text(Fraction(51, 80)) == "+63.8%"
    assert Column("ratio", "ratio", "ratio").text(Fraction(2675, 1000)) == "2.68"


TOKENS = {
    "1": 1, "1024": 1024, "16k": 16_384, "16K": 16_384, "1m": 1_048_576, "16,384": 16_384, "16_384": 16_384,
    "1e3": 1000, "1E6": 1_000_000, "1.5e3": 1500, "2e+17": 2 * 10**17, "8B": 8 * 10**9, "1.5T": 15 * 10**11,
}  # fmt: skip


@pytest.mark.parametrize(("text", "tokens"), TOKENS.items())
def test_tokens(text: str, tokens: int) -> None:
    assert units.read_tokens("--ctx", text) == tokens


INTEGERS = {"8": 8, "0": 0, "-1": -1, "2k": 2048, "16k": 16_384, "1e12": 10**12, "6e9": 6 * 10**9, "1T": 10**12}


@pytest.mark.parametrize(("text", "number"), INTEGERS.items())
def test_integers(text: str, number: int) -> None:
    assert units.read_integer("--gpus", text) == number


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        *(
            (text, "for example 8, or 16k for 16,384")
            for text in ("1.5", "x", "", "8 gpus", "1e-3", "24GB", "--1", "8G")
        ),
        ("1.5k", "1500 or 1536?"),
        ("0.25m", "250000 or 262144?"),
    ],
)
def test_no_integers(text: str, hint: str) -> None:
    with pytest.raises(TfacctError) as raised:
        units.read_integer("--gpus", text)
    assert str(raised.value) == f"--gpus must be a whole number, not {text!r}\n{hint}"


def test_a_size_without_a_unit() -> None:
    with pytest.raises(TfacctError, match=r"not '24'\n24GB or 24GiB\?"):
        units.read_bytes("--on", "24")


def test_the_largest_that_is_read() -> None:
    assert units.read_tokens("--ctx", "9" * 18) == 10**18 - 1
    for text in ("9" * 19, "1e18", "1e99"):
        with pytest.raises(TfacctError, match="far too large"):
            units.read_tokens("--ctx", text)
    assert units.read_bytes("--on", "10PB") == 10**16
    with pytest.raises(TfacctError, match="far too large"):
        units.read_bytes("--on", "10000000000000001B")


@pytest.mark.parametrize(
    "text", ["", "16 k", *"k -1 1.5k 1,5k 16,38 0x10 １６ 1e e3 1e-3 1.25e1 1e3k 1e999 4kk".split()]
)
def test_no_tokens(text: str) -> None:
    with pytest.raises(TfacctError, match="--ctx must be a whole number"):
        units.read_tokens("--ctx", text)


BYTES = {
    **dict.fromkeys(("24GiB", "24gib", "24Gi"), 24 * 1024**3), **dict.fromkeys(("24G", "24 g", "24gb"), 24 * 1000**3),
    "80GB": 80 * 1000**3, "1.5 TB": 1_500_000_000_000, "512MiB": 512 * 1024**2, "100B": 100, "0.5KiB": 512,
}  # fmt: skip


@pytest.mark.parametrize(("text", "size"), BYTES.items())
def test_bytes(text: str, size: int) -> None:
    assert units.read_bytes("--on", text) == size


@pytest.mark.parametrize("text", ["", "24", "24i", "G", "GiB", "24iB", "24GBB", "1e3", "-1GB", "1,5GB", "24GiBs"])
def test_no_bytes(text: str) -> None:
    with pytest.raises(TfacctError, match="must be a size with its unit"):
        units.read_bytes("--on", text)


# Of all quantities in powers of 1000
@pytest.mark.parametrize(
    ("text", "count"),
    [("6e9", 6 * 10**9), ("6G", 6 * 10**9), ("6,000M", 6 * 10**9), ("1e21", 10**21), ("16k", 16_000), ("2.5e1", 25)],
)
def test_every_number_is_read_alike(text: str, count: int) -> None:
    assert units.read_number(text) == units.read_count("--max-params", text) == units.read_rate("peak", text) == count


# A sequence of GPT-2 takes 2 · 1,024 · (12 · 12 · 768² + 768 · 50,257) + 12 · 4 · 768 · 1,024² FLOPs.
@pytest.mark.parametrize("text", ["6e12", "6000B", "6T", "6,000G", "6000000000000"])
def test_an_equation_takes_every_spelling(run, text: str) -> None:
    ran = run("solve", "gpt2", "--for", "batch", "--until", f"total_flops={text}", "--json")
    assert ran.models[0]["solution"] == 6 * 10**12 // 291_648_307_200 == 20


@pytest.mark.parametrize(("text", "count"), [("8B", 8 * 10**9), ("500M", 5 * 10**8), ("1.5b", 15 * 10**8), ("12", 12)])
def test_counts(text: str, count: int) -> None:
    assert units.read_count("--max-params", text) == count
