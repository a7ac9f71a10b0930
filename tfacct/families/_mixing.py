"""Shared by the families with short convolutions: how many positions their classes convolve."""


def convolved_more(kernel: int, tokens: int, context: int) -> int:
    """Positions that a class convolves beyond the new tokens.

    It pads both ends of a prefill by kernel − 1, and what is shorter than the kernel to its length. In a decode step it
    convolves kernel + 1 tokens, so two positions. In front of a chunk it puts the last kernel tokens, and pads both
    ends.
    """
    if tokens == context:
        return max(kernel - tokens, 0) + kernel - 1
    return 1 if tokens == 1 else 2 * kernel - 1
