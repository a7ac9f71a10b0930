"""The reference model: the same transformer in torch, and its counters. Only this package and meta/ import torch.

It uses only the fields of parts, never a line, `axes()` or a count, because that would make the cross-check circular.
"""
