"""Arrays of other libraries (lazy, chunked, or on another device) that implement numpy's protocols.

Arrays with `__array_namespace__` provide their functions (https://data-apis.org/array-api). Arrays with
`__array_ufunc__` and `__array_function__`, such as dask's, work with numpy's functions.
"""

from __future__ import annotations

from typing import Any

from tfacct.base.errors import UsageError


def foreign(np: Any, values: Any) -> bool:
    """True for an array of another library with its own arithmetic."""
    if isinstance(values, (np.ndarray, np.generic)):
        return False
    kind = type(values)
    by_numpy = hasattr(kind, "__array_ufunc__") and hasattr(kind, "__array_function__")
    return by_numpy or hasattr(kind, "__array_namespace__")


def namespace(*values: Any) -> Any:
    """Module with functions for these arrays: their namespace, or numpy."""
    import numpy as np

    for array in values:
        if foreign(np, array) and hasattr(array, "__array_namespace__"):
            return array.__array_namespace__()
    return np


def floats(xp: Any, name: str, values: Any) -> Any:
    """The same numbers in float64. Raises UsageError if the library has no float64, or the array no numbers."""
    error = UsageError(f"{name} must be whole numbers in an array that can hold float64, not {values.dtype}")
    if not hasattr(values, "astype"):
        values = xp.asarray(values)
        if not xp.isdtype(values.dtype, ("integral", "real floating")):
            raise error
        return xp.astype(values, xp.float64)
    if getattr(values.dtype, "kind", "") not in "iuf":
        raise error
    found = values.astype(xp.float64) if xp.__name__ == "numpy" else xp.asarray(values, dtype=xp.float64)
    if found.dtype != xp.float64:
        raise error
    return found
