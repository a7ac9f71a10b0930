"""Parallel layouts: what one rank of a mesh stores, computes and sends, derived from the ledger.

Each axis of a mesh shards one axis of the ledger. Three rules give the collectives:
1. `tp` shards the first axis of a matmul that is one of `TP_AXES`.
2. An operand that is sharded along another axis is gathered, once for all matmuls that read it.
3. A matmul that contracts a sharded axis gives a partial sum: an all-reduce, or a reduce-scatter if the result is
   sharded. The backward pass follows by the same rules from the matmuls of `Matmul.backward`.
`fsdp` shards the batch, and the weights with it: rule 2 gathers them, and rule 3 scatters the sums of their gradients.

Shoeybi et al., "Megatron-LM" (arXiv 1909.08053), section 3; Korthikanti et al. (2205.05198), section 4.2.2; Rajbhandari
et al., "ZeRO" (1910.02054), section 5; torch's DTensor plans and fully_shard.

mesh            sizes of a layout; which axes it shards
verified        what was checked against transformers classes (verified.toml)
collectives     a collective, and what one rank sends for it
shard_shapes    shapes of stored tensors on one rank; units of FSDP
rules           collectives of one pass, with context_parallel, expert_parallel, data_parallel, lora
pipeline        stages, their ledgers and collectives, the bubble
support         models that a layout supports; all others raise an error
shard_model     a loaded model on one rank
rank_flops      what one rank computes and caches; rank_formula: the same in symbols
model_flops     FLOPs of a loaded model, whole or on one rank
rank_memory     what one rank stores and caches, and what fits; rank_params: its part of each tensor
model_collectives   collectives of a loaded model
search          layouts that `plan` tries
"""
