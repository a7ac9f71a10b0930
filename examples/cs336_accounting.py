"""Stanford CS336, assignment 1: the resource accounting of a GPT-2 XL shaped Transformer LM, questions (a) to (e).

The course's model is not GPT-2: RMSNorm, SwiGLU with three matrices of d_ff = 4·d_model, rotary positions, no biases,
an untied head. Every number below is exact, and is checked as it is printed.
"""

from __future__ import annotations

from tfacct import Model, load

SIZES = ("small", "medium", "large", "xl")
BYTES_PER_FP32 = 4


def check(found: object, expected: object) -> None:
    """Stop where a number is not the one the text speaks of."""
    if found != expected:
        raise SystemExit(f"expected {expected}, found {found}")


def components(model: Model, ctx: int) -> dict[str, int]:
    """FLOPs by component."""
    found: dict[str, int] = model.flops(ctx=ctx).models[0]["components"]
    return found


def show_shares(title: str, counts: dict[str, int]) -> str:
    """One line of percentages."""
    whole = sum(counts.values())
    return f"  {title:<18}" + "   ".join(f"{name} {flops / whole:6.1%}" for name, flops in counts.items())


xl = load("cs336-gpt2-xl")

print("(a) How many trainable parameters, and how much memory in single precision?")
params = xl.params().total
print(f"  {params:,} parameters, {params * BYTES_PER_FP32:,} bytes")
check(params, 2_127_057_600)
check(xl.memory(ctx=1024, dtype="fp32").models[0]["weights_bytes"], 8_508_230_400)

print("\n(b) Which matrix multiplies does a forward pass of 1,024 tokens take, and how many FLOPs in all?")
forward = xl.flops(ctx=1024)
for line in forward.lines:
    product = f"{line['times']:,} × ({line['m']:,} × {line['k']:,} × {line['n']:,})"
    print(f"  {line['path']:<24}{product:>32}{line['flops']:>24,}")
print(f"  {'total':<56}{forward.total:>24,}")
check(forward.total, 4_513_336_524_800)

print("\n(c) Which part takes the most FLOPs?")
shares = components(xl, 1024)
print(show_shares("xl", shares))
check(max(shares, key=shares.__getitem__), "mlp")

print("\n(d) How do the shares change from GPT-2 small to XL?")
for size in SIZES:
    print(show_shares(size, components(load(f"cs336-gpt2-{size}"), 1024)))
print("  The blocks alone, without the head:")
for size in SIZES:
    blocks = {k: v for k, v in components(load(f"cs336-gpt2-{size}"), 1024).items() if k != "lm_head"}
    print(show_shares(size, blocks))
print("  The head's share falls and the feed-forward network's grows; scores + values fall, because the context stays")
print("  while the width grows.")

print("\n(e) What if the context is 16,384?")
long = xl.flops(ctx=16384)
print(f"  {long.total:,} FLOPs, {long.total / forward.total:.2f} times as many for 16 times the tokens")
print(show_shares("xl at 16,384", components(xl, 16384)))
check(long.total, 149_522_795_724_800)
check(f"{long.total / forward.total:.2f}", "33.13")

print("\nWhere a commonly seen answer sheet departs from its own formulas:")
before, after = (sum(v for k, v in components(xl, ctx).items() if k != "lm_head") for ctx in (1024, 16384))
ratio = long.total / forward.total
print(f"  - it says 34 times in (e); the blocks alone give {after / before:.1f}, with the head {ratio:.2f}")
check(f"{after / before:.1f}", "33.8")
print("  - its shares in (d) are not those of d_ff = 4·d_model; the blocks' shares above are")
small = {k: v for k, v in components(load("cs336-gpt2-small"), 1024).items() if k != "lm_head"}
check(
    [round(1000 * small[k] / sum(small.values())) for k in ("mlp", "attn_scores_values", "attn_projections")],
    [643, 143, 214],
)
