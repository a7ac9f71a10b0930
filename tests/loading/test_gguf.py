"""Tensor types of GGUF files. Kind: golden."""

import pytest

from tfacct.ledger.formats import GGML
from tfacct.loading.gguf import TYPES

gguf = pytest.importorskip("gguf")


def test_blocks_have_the_bytes_that_the_package_says() -> None:
    sizes = {int(kind): size for kind, size in gguf.constants.GGML_QUANT_SIZES.items()}
    assert {number: (block, taken) for number, (_, block, taken) in TYPES.items() if number in sizes} == {
        number: sizes[number] for number in TYPES if number in sizes
    }
    assert len(set(sizes) & set(TYPES)) > 30
    named = {kind.name.lower(): size for kind, size in gguf.GGML_QUANT_SIZES.items()}
    assert {name: named[name] for name in GGML} == GGML
