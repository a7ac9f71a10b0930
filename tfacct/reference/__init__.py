"""The reference model: the same transformer in torch, and what counts it. Only this package and meta/ import torch.

It is written from the parts' fields alone. It never reads a line, an `axes()` or a count, or it would only agree
with itself.
"""
