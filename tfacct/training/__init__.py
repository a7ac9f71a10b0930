"""Memory of a training step: from rules on the ledger, or by running the class on the meta device."""
