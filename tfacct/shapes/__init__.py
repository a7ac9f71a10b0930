"""Torch over shapes alone: tensors without numbers, what each operation makes and saves, and the backward pass.

It knows of no model. What is written for torch runs here too, and says how many bytes are alive while it does.
"""
