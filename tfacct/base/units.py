"""Dtypes and their bits; parsing (`16k`, `24GiB`) and formatting (4.03 T, 14.2 GiB) of sizes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fractions import Fraction

from tfacct.base.errors import NotFoundError, UsageError, cut, nearest
from tfacct.base.spelling import for_each

BITS = {"fp32": 32, "tf32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "int4": 4}
"""Bits per stored element. tf32 is a mode of multiplication: its elements are stored in 32 bits."""

BLOCKS = ("mxfp4", "nvfp4", "gptq", "awq", "nf4", "fp8-block")
"""Quantization formats for weights, in blocks with a shared scale; their sizes are in `ledger.storage`."""
GGUF = (
    *("q8_0", "q6_k", "q5_k_m", "q5_k_s", "q5_1", "q5_0", "q4_k_m", "q4_k_s", "q4_1", "q4_0"),
    *("q3_k_l", "q3_k_m", "q3_k_s", "q2_k"),
)
"""llama.cpp's types, and mixtures with a type for each tensor by name and layer."""
SCALED = "-token"
SCALED_CACHES = ("fp8-token", "int8-token")
"""Formats for a KV cache only: 8 bits per number, and a 32-bit scale for each token and head."""
BLOCK_CACHES = ("q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
"""llama.cpp's types for a KV cache: the numbers of a head in blocks with a shared scale."""
CACHES = (*SCALED_CACHES, *BLOCK_CACHES)
DTYPES = (*BITS, *BLOCKS, *GGUF)

LARGEST_TOKENS = 10**18
LARGEST_COUNT = 10**30
LARGEST_BYTES = 10**16
"""Ten petabytes, the largest size that is accepted."""

_OTHER_NAMES = {
    "float32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
}

SI = ("", "K", "M", "G", "T", "P", "E", "Z", "Y", "R", "Q")
PEOPLE = ("", "K", "M", "B", "T", "Q")
"""Prefixes for parameters: billions (`7B`) instead of giga."""
DECIMAL = ("B", "KB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB")
BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB")

_DIGITS = r"((?:\d{1,3}(?:,\d{3})+|\d[\d_]*)(?:\.\d+)?|\.\d+)(?:e\+?(\d{1,2}))?"
_NUMBER = _DIGITS + r"(\s*(?:[KMBGTP]|(?-i:E)))?"  # 1e is an exponent that lacks its digits
_BYTES = _DIGITS + r"\s*(?:([KMGTP])(i?)B?|B)"
_POWERS = {"": 0, "K": 1, "M": 2, "B": 3, "G": 3, "T": 4, "P": 5, "E": 6}
"""Powers of 1000 (or 1024) by prefix."""
LONGEST = 40
"""Most digits that are parsed. Longer numbers count as too large; int() rejects several thousand digits."""
_EITHER_CASE = re.IGNORECASE | re.ASCII


def dtype_bits(name: str) -> int:
    """Bits per stored element of the dtype `name` (fp32, tf32, bf16, fp16, fp8, int8, int4).

    Raises TfacctError for unknown names and for formats that are for weights only.
    """
    key = dtype_name(name)
    if key not in BITS:
        raise UsageError(f"{key} is a weight format, not a KV cache format", f"one of {', '.join((*BITS, *CACHES))}")
    return BITS[key]


def dtype_name(name: str) -> str:
    """Short name of a dtype: bf16 for `bfloat16`; `awq+head` is AWQ with a quantized head.

    Raises NotFoundError with the nearest name, and UsageError.
    """
    key, *more = name.lower().removeprefix("torch.").split("+")
    key = _OTHER_NAMES.get(key, key)
    if more and key in DTYPES:
        return _extended(key, more)
    if key not in DTYPES:
        raise NotFoundError(f"unknown dtype {name!r}", nearest(name, DTYPES) or f"known dtypes: {', '.join(DTYPES)}")
    return key


ALSO = ("head", "embed")
"""Matrices that a narrow format quantizes on request: `awq+head`."""


def _extended(key: str, more: list[str]) -> str:
    """Name of a format that also quantizes the head or the embedding. Raises UsageError."""
    if not set(more) <= set(ALSO) or len(set(more)) < len(more):
        known = f"extend it as {key}+head or {key}+head+embed"
        raise UsageError(f"unknown dtype {'+'.join((key, *more))!r}", known)
    if key in GGUF or not is_narrow(key):
        raise UsageError(f"{key} already applies to every tensor: leave +{'+'.join(more)} out")
    return "+".join((key, *more))


def is_narrow(name: str) -> bool:
    """True if a dtype has fewer than 16 bits: weights are quantized to it, activations and norms are not."""
    return BITS.get(name, 0) < 16


def read_number(text: str, kilo: int = 1000) -> Fraction | None:
    """Number from a user's text: digits, grouped or not, with an exponent of 10 or a prefix; None if it is not a
    number.

    >>> read_number("6e9") == read_number("6B") == read_number("6 G") == read_number("6,000M") == 6 * 10**9
    True
    >>> read_number("16k"), read_number("16k", kilo=1024), read_number("0.5"), read_number("1e")
    (Fraction(16000, 1), Fraction(16384, 1), Fraction(1, 2), None)

    `kilo` is the value of k, and its square the value of m; larger prefixes, from B = 10⁹, are always decimal.
    """
    match = re.fullmatch(_NUMBER, text.strip(), _EITHER_CASE)
    if match is None or (match[2] and match[3]):
        return None
    power = _POWERS[(match[3] or "").strip().upper()]
    return _exact(match[1], match[2]) * int((kilo if power < 3 else 1000) ** power)


def _exact(digits: str, exponent: str | None) -> Fraction:
    """Digits times a power of 10; with more than LONGEST digits, a number too large for every use."""
    plain = digits.replace(",", "").replace("_", "")
    return Fraction(plain if len(plain) <= LONGEST else 10**LONGEST) * int(10 ** int(exponent or 0))


def read_integer(option: str, text: str) -> int:
    """Whole number from a user's text: `k` and `m` are powers of 1024, `B`, `T` and exponents are decimal.

    >>> read_integer("--batch", "16k"), read_integer("--new", "16,384"), read_integer("--limit", "0")
    (16384, 16384, 0)
    >>> read_integer("--tokens", "1e12") == read_integer("--tokens", "1T") == 10**12
    True

    Raises UsageError, which names the `option`.
    """
    if re.fullmatch(r"-\d{1,18}", text.strip(), re.ASCII):
        return int(text)
    return _integer(option, text, "a whole number", "for example 8, or 16k for 16,384")


def read_tokens(option: str, text: str) -> int:
    """Number of tokens or sequences, at least 1, with the prefixes of `read_integer`.

    >>> read_tokens("--ctx", "16k"), read_tokens("--ctx", "1.5e3"), read_tokens("--batch", "2B")
    (16384, 1500, 2000000000)

    Raises UsageError, which names the `option`.
    """
    return _integer(option, text, "a whole number of at least 1", "for example 512, or 16k for 16,384")


def _integer(option: str, text: str, what: str, hint: str) -> int:
    number, odd_prefix = read_number(text, kilo=1024), re.search(r"\s[a-z]|[gpe]$", text.strip(), re.IGNORECASE)
    thousands = read_number(text) if re.search(r"\.\d+[km]$", text.strip(), re.IGNORECASE) else None
    if number is None or thousands is not None or number.denominator != 1 or odd_prefix:
        if number is not None and thousands is not None and number.denominator == thousands.denominator == 1:
            hint = f"{int(thousands)} or {int(number)}?"
        if re.match("--[a-z]", text):  # the next option
            raise UsageError(f"{option} needs a value", f"for example {option} 8")
        if "," in text and all(map(is_tokens, text.split(","))):
            hint = for_each()
        raise UsageError(f"{option} must be {what}, not {cut(text)!r}", hint)
    if number >= LARGEST_TOKENS:
        raise UsageError(f"{option} {cut(text, 21)} is far too large")
    return int(number)


def is_tokens(text: str) -> bool:
    """True if `text` is one number of tokens, with or without separators."""
    return read_number(text, kilo=1024) is not None


def read_count(option: str, text: str, of: str = "parameters", example: str = "8B or 500M") -> int:
    """Number of parameters from a user's text, in powers of 1000: `8B` = 8 · 10⁹, `500M`, `6e9`. Raises UsageError."""
    number = read_number(text)
    if number is None:
        raise UsageError(f"{option} must be a number of {of}, not {cut(text)!r}", f"for example {example}")
    if number >= LARGEST_COUNT:
        raise UsageError(f"{option} {cut(text, 21)} is far too large")
    return int(number)


def read_bytes(option: str, text: str) -> int:
    """Number of bytes from a user's text: powers of 1024 with an `i`, powers of 1000 without it; `B` is optional.

    >>> read_bytes("--on", "24GiB"), read_bytes("--on", "24GB"), read_bytes("--on", "24G")
    (25769803776, 24000000000, 24000000000)

    `24G` is 24 GB as in SI, like `24GB`: never more than the memory of a card sold under that name.

    Raises UsageError, which names the `option`.
    """
    match = re.fullmatch(_BYTES, text.strip(), _EITHER_CASE)
    if match is None:
        bare = re.fullmatch(r"\d{1,6}(?:\.\d{1,3})?", text.strip(), re.ASCII)
        hint = f"{text.strip()}GB or {text.strip()}GiB?" if bare else "for example 24GiB or 80GB"
        raise UsageError(f"{option} must be a size with its unit, not {cut(text)!r}", hint)
    base = 1024 if match[4] else 1000
    size = int(_exact(match[1], match[2]) * base ** _POWERS[(match[3] or "").upper()])
    if size > LARGEST_BYTES:
        raise UsageError(f"{option} {cut(text)} is far too large")
    return size


def is_bytes(text: str) -> bool:
    """True if `text` is one size with its unit.

    >>> is_bytes("24GB"), is_bytes("24"), is_bytes("t4")
    (True, False, False)
    """
    return re.fullmatch(_BYTES, text.strip(), _EITHER_CASE) is not None


def read_rate(option: str, text: str) -> float:
    """FLOP/s from a user's text: a number with an exponent or a prefix.

    >>> read_rate("peak", "989e12") == read_rate("peak", "989T") == read_rate("peak", "989 TFLOP/s")
    True

    Raises UsageError, which names the `option`.
    """
    number = read_number(re.sub(r"FLOPS?/s$|FLOPs$", "", text.strip(), flags=re.IGNORECASE))
    if number is None:
        raise UsageError(f"{option} must be FLOP/s, not {cut(text)!r}", "for example 989e12 or 989T")
    return float(number)


def _scaled(value: int, base: int, names: tuple[str, ...]) -> str:
    """Text of `value` with three significant digits, in the largest unit that leaves at least 1 before the point.

    Integer arithmetic throughout: a float would already round values from 2⁵³ on.
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
            integer, part = divmod(rounded, 10**decimals)
            return f"{sign}{integer:,}{f'.{part:0{decimals}}' if decimals else ''} {names[step]}"
    # A value that rounds up to 1,000, or is 1,000 to 1,023 in a binary unit, moves to the next unit.
    part = value / base ** (step + 1)
    return f"{sign}{part:.3f} {names[step + 1]}" if part < 0.9995 else f"{sign}1.00 {names[step + 1]}"


def _rounded(dividend: int, divisor: int) -> int:
    """Quotient rounded half to even. (`round` of a Fraction is five times slower.)"""
    quotient, rest = divmod(dividend, divisor)
    up = 2 * rest > divisor or (2 * rest == divisor and quotient % 2 == 1)
    return quotient + 1 if up else quotient


def decimals(value: Fraction | int, places: int) -> str:
    """Text of `value` with `places` decimals, rounded half to even; exact, unlike a float."""
    sign, value = ("-", -value) if value < 0 else ("", value)
    rounded = _rounded(value.numerator * 10**places, value.denominator)
    integer, part = divmod(rounded, 10**places)
    return f"{sign if rounded else ''}{integer}{f'.{part:0{places}}' if places else ''}"


def percent(share: Fraction | float, places: int = 1) -> str:
    """Text of a fraction of 1 as a percentage.

    >>> percent(Fraction(23, 80))
    '28.8%'
    """
    return f"{decimals(Fraction(share) * 100, places)}%"


def change(ratio: Fraction) -> str:
    """Text of the ratio new / old: a percentage, or a factor for large changes.

    >>> change(Fraction(997, 1000)), change(Fraction(3, 2)), change(Fraction(256)), change(Fraction(1, 8))
    ('−0.3%', '+50.0%', '× 256', '÷ 8')
    >>> change(Fraction(10, 3)), change(Fraction(3, 100)), change(Fraction(100_003, 100_000))
    ('× 3.33', '÷ 33.3', '+0.003%')
    """
    if ratio == 1:
        return "unchanged"
    if ratio >= 2:
        return f"× {_factor(ratio)}"
    if ratio == 0:
        return "gone"
    if ratio <= Fraction(1, 10) or (ratio < 1 and ratio.numerator == 1):
        return f"÷ {_factor(1 / ratio)}"
    share = abs(ratio - 1)
    places = next((places for places in (1, 2, 3) if share * 100 * 10**places >= 1), 4)
    return f"{'+' if ratio > 1 else '−'}{percent(share, places)}"


def _factor(value: Fraction) -> str:
    """Text with three significant digits; whole numbers in full."""
    if value.denominator == 1 or value >= 1000:
        return f"{round(value):,}"
    return decimals(value, 2 if value < 10 else 1 if value < 100 else 0)


def between(values: Iterable[int]) -> str:
    """Whole numbers as one phrase: `512`, `512 or 4,096`, or `512 to 4,096` for more than two."""
    found = sorted(set(values))
    if len(found) < 3:
        return " or ".join(f"{value:,}" for value in found)
    return f"{found[0]:,} to {found[-1]:,}"


def si(value: int) -> str:
    """Text of a count with three significant digits, in powers of 1000.

    >>> si(133_416_668_364_800), si(4_026_531_840), si(768)
    ('133 T', '4.03 G', '768')
    """
    return _scaled(value, 1000, SI)


def people(value: int) -> str:
    """Text of a number of parameters, with B for 10⁹.

    >>> people(1_557_611_200)
    '1.56 B'
    """
    return _scaled(value, 1000, PEOPLE)


def binary(value: int) -> str:
    """Text of a number of bytes, in powers of 1024.

    >>> binary(16 * 1024**3), binary(1000)
    ('16.0 GiB', '1,000 B')
    """
    return _scaled(value, 1024, BINARY)


def needed_and_usable(needed: int, usable: int, each: str = "") -> str:
    """Text of needed and usable bytes, or of what is missing if both round to the same.

    >>> needed_and_usable(80 * 1024**3, 69 * 1024**3, " per GPU"), needed_and_usable(1024**3 + 2048, 1024**3)
    ('80.0 GiB per GPU, and 69.0 GiB is usable', '1.00 GiB, 2.00 KiB more than is usable')
    """
    taken, available = map(binary, (needed, usable))
    other = f"{binary(needed - usable)} more than" if taken == available else f"and {available}"
    return f"{taken}{each}, {other} is usable"


def binary_unit(value: int) -> str:
    """Unit of `binary(value)`, at least KiB.

    >>> binary_unit(16 * 1024**3), binary_unit(12)
    ('GiB', 'KiB')
    """
    return binary(max(value, 1024)).rpartition(" ")[2]


def in_binary_unit(value: int, unit: str) -> str:
    """Number of bytes in a unit, with three significant digits and at most three decimals.

    >>> in_binary_unit(80_946_473_364, "GiB"), in_binary_unit(32 * 1024, "GiB"), in_binary_unit(0, "GiB")
    ('75.4', '<0.001', '0')
    """
    thousandths = _rounded(value * 1000, 1024 ** BINARY.index(unit))
    if not thousandths:
        return "<0.001" if value else "0"
    places = 3 if thousandths < 1000 else 2 if thousandths < 9_995 else 1 if thousandths < 99_950 else 0
    return decimals(Fraction(value, 1024 ** BINARY.index(unit)), places)


def budget(value: int) -> str:
    """Text of a memory budget: exact, in the unit that needs the fewest digits; rounded to GiB if an exact number would
    need thousands of a smaller unit, as for a card's memory.

    >>> budget(24 * 1024**3), budget(80 * 10**9), budget(1_000_001), budget(81_090 * 1024**2)
    ('24 GiB', '80 GB', '1,000,001 B', '79.2 GiB')
    """
    found = [f"{value:,} B"]
    for base, names in ((1024, BINARY), (1000, DECIMAL)):
        for power, name in enumerate(names[1:5], start=1):
            hundredths, rest = divmod(value * 100, base**power)
            if not rest and hundredths:
                integer, part = divmod(hundredths, 100)
                found.append(f"{integer:,}{f'.{part:02}'.rstrip('0') if part else ''} {name}")
    shortest = min(found, key=len)
    return binary(value) if "," in shortest and value >= 1024**3 else shortest


def decimal_bytes(value: int) -> str:
    """Text of a number of bytes in powers of 1000, as for memory sizes of cards.

    >>> decimal_bytes(16 * 1024**3)
    '17.2 GB'
    """
    return _scaled(value, 1000, DECIMAL)


def read_seconds(option: str, text: str) -> float:
    """Seconds from a user's text with its unit.

    >>> read_seconds("--within", "50ms"), read_seconds("--within", "0.0690763409688434 s")
    (0.05, 0.0690763409688434)

    Raises UsageError, which names the `option`.
    """
    match = re.fullmatch(r"(\d{1,9}(?:\.\d+)?)\s*(ms|s)", text.strip(), re.ASCII)
    if match is None or not float(match[1]):
        raise UsageError(f"{option} must be a time with its unit, not {text!r}", "for example 50ms or 2s")
    return float(match[1]) / (1000 if match[2] == "ms" else 1)


def seconds(value: Fraction | float) -> str:
    """Text of a time with three significant digits.

    >>> seconds(0.0203), seconds(2.4e-6), seconds(7.218), seconds(7200)
    ('20.3 ms', '2.40 µs', '7.22 s', '7,200 s')
    """
    for unit, per in (("s", 1), ("ms", 1000), ("µs", 10**6)):
        if value * per >= 0.9995 or (unit == "µs" and value):
            return f"{three(value * per)} {unit}"
    return "0 s"


def time_range(values: Sequence[float | Fraction]) -> str:
    """Text of one time, or of two in the same unit.

    >>> time_range([0.0163, 0.0238]), time_range([0.5, 2.0])
    ('16.3 … 23.8 ms', '500 ms … 2.00 s')
    """
    *low, high = map(seconds, values)
    return " … ".join([*(one.removesuffix(f" {high.split()[1]}") for one in low), high])


def number_of(count: int, noun: str) -> str:
    """Text of a number of things.

    >>> number_of(1, "token"), number_of(0, "layer"), number_of(1024, "micro-batch")
    ('1 token', '0 layers', '1,024 micro-batches')
    """
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun}{'es' if noun.endswith('ch') else 's'}"


def requests(count: int) -> str:
    """Text of a number of requests."""
    return number_of(count, "request")


def three(value: Fraction | float) -> str:
    """Text of a number with three significant digits: `0.0123`, `4.50`, `20.3`, `1,234`.

    >>> three(0.01234), three(4.5), three(20.31), three(1234.4)
    ('0.0123', '4.50', '20.3', '1,234')
    """
    number, places = abs(float(value)), 2
    while number and number < 0.9995 and places < 12:
        number, places = number * 10, places + 1
    for limit in (9.995, 99.95):
        if number >= limit:
            places -= 1
    return f"{float(value):,.{max(places, 0)}f}"
