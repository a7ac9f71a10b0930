"""A ledger with symbols for sizes: formulas, factoring, equations, solving, arrays."""
