"""From which context on scores + values cost more than everything else: solved in symbols, then by the ledger."""

from __future__ import annotations

from tfacct import load

MODELS = ("gpt2", "gpt2-xl", "llama-3.2-1b", "llama-3.1-8b", "llama-3.1-405b", "qwen2-7b")

print("Scores + values overtake all the other products at\n")
for name in MODELS:
    model = load(name)
    facts = model.solve("ctx", "share.attn_scores_values=50%").models[0]
    below, above = (model.flops(ctx=facts[side]).models[0] for side in ("solution", "beyond"))
    halves = [2 * count["components"]["attn_scores_values"] <= count["total_flops"] for count in (below, above)]
    assert halves == [True, False]  # the ledger agrees on both sides
    trained = model.loaded.context
    print(f"{name:<16} {facts['beyond']:>9,} tokens   (trained for {trained:,})")

attention = load("gpt2-xl").architecture.attentions[0]
sizes = attention.axes()
form = load("gpt2-xl").solve("ctx", "share.attn_scores_values=50%").models[0]["closed_form"]
print(f"\nGPT-2's formula: S = {form}")
print(f"its heads make up the hidden size, N·H = {sizes['N'] * sizes['H']:,} = D, so that is about 2·D + F.")
