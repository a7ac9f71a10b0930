"""A mesh over a ledger: letters are divided among ranks, and what each rank holds and sends follows.

Where things live is stated once (`LIVES`, and a step's tokens under sequence parallelism). Three rules give the rest:
1. A mesh axis divides one letter of a product: over `tp` the first of `LIVES` that it has.
2. An operand that lives divided along another letter is gathered, once for all products that read it.
3. A divided letter that is contracted leaves a partial sum: an all-reduce, or a reduce-scatter where the result lives
   divided. The backward pass follows by the same rules from the products of `Matmul.backward`.
Over `fsdp`, which divides the batch, weights are the operands that live divided: rule 2 gathers them, and rule 3
scatters the sums of their gradients.

Shoeybi et al., "Megatron-LM" (arXiv 1909.08053), section 3; Korthikanti et al. (2205.05198), section 4.2.2; Rajbhandari
et al., "ZeRO" (1910.02054), section 5; torch's DTensor plans and fully_shard.
"""
