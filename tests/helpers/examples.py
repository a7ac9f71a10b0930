"""Parameters of the examples' models, by hand."""

import tomllib
from pathlib import Path

FILE = Path(__file__).with_suffix(".toml")
MODELS = {name: eval(f"({text})") for name, text in tomllib.loads(FILE.read_text(encoding="utf-8")).items()}
