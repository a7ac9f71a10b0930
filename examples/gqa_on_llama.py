"""What grouped-query attention changes in Llama-3.1-8B: the k and v projections and the KV cache, not QKᵀ and PV."""

from __future__ import annotations

from tfacct import load

CTX = 16_384
VARIANTS = {"MHA": 32, "GQA, as built": 8, "MQA": 1}

models = {name: load("llama-3.1-8b", num_key_value_heads=heads) for name, heads in VARIANTS.items()}
by_line = {name: {line["path"]: line["flops"] for line in model.flops(ctx=CTX).lines} for name, model in models.items()}

print(f"Llama-3.1-8B at {CTX:,} tokens, by key/value heads\n")
print(f"{'':<24}" + "".join(f"{name:>22}" for name in models))
for path in by_line["MHA"]:
    counts = [by_line[name][path] for name in models]
    note = "" if len(set(counts)) > 1 else "   (unchanged)"
    print(f"{path:<24}" + "".join(f"{count:>22,}" for count in counts) + note)
print(f"{'total FLOPs':<24}" + "".join(f"{model.flops(ctx=CTX).total:>22,}" for model in models.values()))
print(f"{'parameters':<24}" + "".join(f"{model.params().total:>22,}" for model in models.values()))
print(f"{'KV cache, bytes':<24}" + "".join(f"{model.kv(ctx=CTX).total:>22,}" for model in models.values()))

mha, gqa = models["MHA"], models["GQA, as built"]
saved = 1 - gqa.flops(ctx=CTX).total / mha.flops(ctx=CTX).total
print(
    f"\nGQA keeps {gqa.kv(ctx=CTX).total / mha.kv(ctx=CTX).total:.0%} of the cache and saves {saved:.1%} of the FLOPs:"
)
print("it is bought for memory and for the bytes a decode step reads, not for arithmetic.")
