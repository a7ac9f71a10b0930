"""kv: what is kept at a context, and what further tokens add, in words that hold for the model."""

import pytest


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        # 2 · 32 · 131,072 · 8 · 128 · 2 bytes
        ("llama-3.1-8b", "16.0 GiB at context 131,072; each further token adds 128 KiB."),
        ("gpt2 --batch 8", "288 MiB at context 1,024, batch 8; each further token of a sequence adds 36.0 KiB."),
        # 32 blocks keep 4,096 keys each and no more: 2 · 32 · 4,096 · 8 · 128 · 2
        ("mistral-7b-v0.1 --ctx 8k", "512 MiB at context 8,192; further tokens add nothing."),
        # below the window of 1,024 all 34 blocks keep a token more, above it 5: 2 · 34 or 2 · 5 · 4 · 256 · 2
        ("gemma-3-4b-text --ctx 512", "68.0 MiB at context 512; the next token adds 136 KiB."),
        ("gemma-3-4b-text --ctx 4k", "196 MiB at context 4,096; each further token adds 20.0 KiB."),
        # 24 · 1,536 · (4 + 16) · 2 bytes, whatever the context
        ("mamba-130m --ctx 7", "1.41 MiB at every context."),
        # as many of the source as of the tokens: 2 · 2 · 12 · 512 · 12 · 64 · 2
        ("t5-base", "36.0 MiB at context 512, source 512; each further token adds 36.0 KiB."),
        ("gpt2 mamba-130m", "From 1.41 MiB (mamba-130m) to 36.0 MiB (gpt2)."),
    ],
)  # fmt: skip
def test_the_answer_first(arguments: str, answer: str, run) -> None:
    assert run("kv", *arguments.split(), columns=120).out.splitlines()[1] == answer
