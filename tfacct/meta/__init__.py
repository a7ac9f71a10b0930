"""A model class on the meta device: its saved tensors, its live bytes, its optimizer state. Needs torch.

On meta, nothing is computed and every tensor has its shape, so its storages are those on a GPU, once the kernels are
those that torch uses there. This package contains no rules about memory.
"""
