"""Cross-checks of a ledger: counters, the transformers class, published totals, proofs, checkpoints."""
