"""What holds a ledger against somebody else: counters, the transformers class, published totals."""
