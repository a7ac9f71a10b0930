"""Sums over a ledger: FLOPs of training and decode steps, memory, metrics."""
