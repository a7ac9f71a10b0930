"""One module per command: its options, and the report that answers. Python's methods are the same functions."""

PANELS = {
    "Count": ("flops", "params", "memory", "formula"),
    "Train": ("train", "plan", "budget", "mfu"),
    "Serve": ("serve", "engine", "time"),
    "Explore": ("compare", "sweep", "solve", "explore"),
    "Data": ("models", "devices"),
    "Trust": ("verify", "check"),
    "": ("help",),
}
"""Commands by the panel of the help; each is a module of this package."""
NAMES = tuple(name for names in PANELS.values() for name in names)
"""Every command, in the order of the help."""

FORMER: dict[str, tuple[str, ...]] = {
    "kv": ("memory", "--kv"),
    "fit": ("memory", "--on", "all"),
    "comms": ("plan",),
    "diff": ("compare", "--by", "line"),
    "show": ("models",),
    "checkpoint": ("check",),
    "conventions": ("help", "counting"),
    "measure": ("mfu", "--run"),
    "metrics": ("help", "metrics"),
    "schema": ("help", "schema"),
}
"""Commands of the last release or of similar tools, and what answers instead."""
