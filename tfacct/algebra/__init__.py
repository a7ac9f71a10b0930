"""A ledger in letters: symbols, factored formulas, equations, solving, arrays."""
