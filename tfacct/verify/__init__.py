"""Witnesses that a ledger is compared with: counters, the transformers class, published totals."""
