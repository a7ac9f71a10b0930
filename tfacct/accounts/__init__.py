"""What follows from a ledger: passes, memory, metrics."""
