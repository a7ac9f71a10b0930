"""Tests of this folder need what the extra `dev` brings: without it none of them is collected."""

from importlib.util import find_spec

NEEDED = ("torch", "fvcore", "transformers", "peft", "sympy")
collect_ignore_glob = [] if all(map(find_spec, NEEDED)) else ["test_*.py"]
