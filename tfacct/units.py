"""Dtypes and their bits; how sizes are read (`16k`, `24GiB`) and written (4.03 T, 14.2 GiB)."""

from __future__ import annotations

import re
from fractions import Fraction

from tfacct.errors import NotFoundError, UsageError, nearest

BITS = {"fp32": 32, "tf32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "int4": 4}
"""Bits that one stored element takes. tf32 is a way to multiply: it is stored in 32 bits."""

LARGEST_BYTES = 10**16
"""Ten petabytes: no budget above it is meant seriously."""

_TORCH_NAMES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}

SI = ("", "K", "M", "G", "T", "P", "E", "Z", "Y", "R", "Q")
PEOPLE = ("", "K", "M", "B", "T", "Q")
"""Parameters are spoken of in billions (`7B`), FLOPs in giga."""
BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB")

_WHOLE = r"(\d{1,3}(?:,\d{3})+|\d[\d_]*)"
_TOKENS = _WHOLE + r"(k|m)?"
_COUNT = r"(\d+(?:\.\d+)?)\s*([KMBT]?)"
_BYTES = r"(\d+(?:\.\d+)?)\s*([KMGTP]?)(i?)B"
_EITHER_CASE = re.IGNORECASE | re.ASCII


def dtype_bits(name: str) -> int:
    """Bits per stored element of the dtype `name` (fp32, tf32, bf16, fp16, fp8, int8, int4)."""
    return BITS[dtype_name(name)]


def dtype_name(name: str) -> str:
    """The short name of a dtype: `bfloat16` is bf16."""
    key = _TORCH_NAMES.get(name.lower(), name.lower())
    if key not in BITS:
        raise NotFoundError(f"unknown dtype {name!r}", nearest(name, BITS) or f"known dtypes: {', '.join(BITS)}")
    return key


def read_tokens(option: str, text: str) -> int:
    """A number of tokens or sequences: `1024`, `16,384`, `16k` = 16,384, `1m` = 1,048,576."""
    match = re.fullmatch(_TOKENS, text.strip(), _EITHER_CASE)
    if match is None:
        raise UsageError(
            f"{option} must be a whole number of at least 1, not {text!r}",
            "for example 512, or 16k for 16,384",
        )
    digits = match[1].replace(",", "").replace("_", "")
    if len(digits) > 18:  # int() itself refuses absurd lengths, with a message about Python
        raise UsageError(f"{option} {text[:20]}… is absurdly large")
    steps = " km".index(match[2].lower()) if match[2] else 0
    return int(digits) << 10 * steps


def read_count(option: str, text: str) -> int:
    """A number of parameters as people say it: `8B` = 8 · 10⁹, `500M`."""
    match = re.fullmatch(_COUNT, text.strip(), _EITHER_CASE)
    if match is None or len(match[1]) > 18:
        raise UsageError(f"{option} must be a number of parameters, not {text!r}", "for example 8B or 500M")
    return int(Fraction(match[1]) * 1000 ** " KMBT".index(match[2].upper() or " "))


def read_bytes(option: str, text: str) -> int:
    """A size in bytes: `24GiB` = 24 · 1024³, `80GB` = 80 · 1000³."""
    match = re.fullmatch(_BYTES, text.strip(), _EITHER_CASE)
    if match is None or (match[3] and not match[2]) or len(match[1]) > 18:
        raise UsageError(f"{option} must be a size with its unit, not {text!r}", "for example 24GiB or 80GB")
    base = 1024 if match[3] else 1000
    size = int(Fraction(match[1]) * base ** " KMGTP".index(match[2].upper() or " "))
    if size > LARGEST_BYTES:
        raise UsageError(f"{option} {text} is absurdly large")
    return size


def _scaled(value: int, base: int, names: tuple[str, ...]) -> str:
    """`value` with three significant digits and the largest unit that leaves at least 1 before the point.

    Integer arithmetic throughout: a float would round 2⁵³ and up before we do.
    """
    sign, value = ("-", -value) if value < 0 else ("", value)
    if value < base:
        return f"{sign}{value:,} {names[0]}".rstrip()
    step = 1
    while step + 1 < len(names) and value >= base ** (step + 1):
        step += 1
    last = step + 1 == len(names)
    for decimals, limit in ((2, 10), (1, 100), (0, 1000)):
        rounded = _rounded(value * 10**decimals, base**step)
        if rounded < limit * 10**decimals or (decimals == 0 and last):
            whole, part = divmod(rounded, 10**decimals)
            return f"{sign}{whole:,}{f'.{part:0{decimals}}' if decimals else ''} {names[step]}"
    # What rounds up to 1,000, and 1,000 to 1,023 of a binary unit, is said in the next one.
    part = value / base ** (step + 1)
    return f"{sign}{part:.3f} {names[step + 1]}" if part < 0.9995 else f"{sign}1.00 {names[step + 1]}"


def _rounded(part: int, whole: int) -> int:
    """`part / whole`, a half to the even side: `round` of their fraction, which takes five times as long."""
    quotient, rest = divmod(part, whole)
    return quotient + (2 * rest > whole or (2 * rest == whole and quotient % 2))


def si(value: int) -> str:
    """A count in powers of 1000: `133 T`, `4.03 G`."""
    return _scaled(value, 1000, SI)


def people(value: int) -> str:
    """A number of parameters: `1.56 B`."""
    return _scaled(value, 1000, PEOPLE)


def binary(value: int) -> str:
    """Bytes in powers of 1024: `14.2 GiB`."""
    return _scaled(value, 1024, BINARY)


def decimal_bytes(value: int) -> str:
    """Bytes in powers of 1000, as cards are sold: `15.2 GB`."""
    return _scaled(value, 1000, ("B", "KB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"))
