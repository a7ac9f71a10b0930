"""Matmuls as lines of named axes, and every count that follows from them. No transformers here."""
