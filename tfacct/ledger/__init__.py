"""Matmuls as lines with named axes, and the counts derived from them; independent of transformers."""
