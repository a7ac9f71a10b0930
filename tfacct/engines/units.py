"""Units of the engines' logs."""

GIB, MIB = 2**30, 2**20


def ceil_div(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)
