"""Time of a step or a request: kernels, constants of devices, serving and training. Estimates, with their errors."""
