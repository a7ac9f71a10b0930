"""The builder of the documentation."""

import importlib
import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "docs" / "llms.txt"]


def builder():
    sys.path[:0] = [folder] if (folder := str(ROOT / "docs")) not in sys.path else []  # its modules are next to it
    spec = importlib.util.spec_from_file_location("docs_build", ROOT / "docs" / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
