"""What a program or a command imports."""

import subprocess
import sys

HEAVY = ("torch", "numpy", "sympy", "fvcore", "transformers", "matplotlib", "huggingface_hub")


def imported_by(code: str) -> set[str]:
    """The heavy modules that are loaded after `code` ran in a fresh interpreter."""
    script = f"import sys; sys.argv = ['tfacct']\n{code}\nprint(*[m for m in {HEAVY!r} if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    return set(ran.stdout.splitlines()[-1].split())


def commanded(*arguments: str) -> str:
    return f"""
from tfacct.cli import main
sys.argv += {list(arguments)!r}
try: main()
except SystemExit as stop: assert not stop.code, stop.code
"""
