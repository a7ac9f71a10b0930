"""Memory of a training step, from rules that read the ledger; and the class itself, run on the meta device."""
