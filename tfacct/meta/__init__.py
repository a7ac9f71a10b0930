"""A model class on the meta device: its saved tensors, its live bytes, its optimizer state. Needs torch.

On meta nothing is computed and every tensor has its shape, so its storages are what a GPU would hold, once the kernels
are those that torch takes there. Nothing in this package knows a rule about memory.
"""
