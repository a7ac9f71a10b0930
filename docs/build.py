"""Prints the tables of the documentation from the program itself, or checks that they are what it prints.

`python docs/build.py` rewrites every ```console block in README.md and docs/ and the whole of docs/cli.md;
`python docs/build.py --check` only compares, and exits 1 naming the files that are stale.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMANDS = ("flops", "params", "memory", "kv", "formula", "models", "show", "verify", "measure")

EXIT_CODES = """\
Data goes to stdout; hints, warnings and progress to stderr. Exit codes: 0 fine, 1 `verify` found a difference, 2 wrong
usage or bad input, 130 interrupted. `NO_COLOR`, pipes and `TERM=dumb` give plain text; a narrow terminal drops
columns, never digits.
"""


def printed(command: str) -> str:
    """What a command shows in a terminal of 80 columns: its table, then its hints."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb", "PATH": path, "PYTHONIOENCODING": "utf-8"}
    ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=ROOT, env=env)
    return ran.stdout + ran.stderr


def refreshed(text: str) -> str:
    """The text with the output of every `$ command` in its console blocks printed anew."""

    def block(match: re.Match[str]) -> str:
        commands = [line for line in match[1].splitlines() if line.startswith("$ ")]
        outputs = (f"{command}\n{printed(command.removeprefix('$ '))}" for command in commands)
        return f"```console\n{''.join(outputs)}```"

    return BLOCK.sub(block, text)


def cli_reference() -> str:
    """docs/cli.md: the help of every command."""
    parts = ["# Command line\n\nPrinted by the program: `python docs/build.py`.\n\n" + EXIT_CODES]
    for command in ("", *COMMANDS):
        words = f"tfacct {command}".strip()
        help_text = "\n".join(line.rstrip() for line in printed(f"{words} --help").strip().splitlines())
        parts.append(f"## {words}\n\n```text\n{help_text}\n```\n")
    return "\n".join(parts)


def documents() -> dict[Path, str]:
    """Every page as it should be."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    wanted = {page: refreshed(page.read_text(encoding="utf-8")) for page in pages if page.name != "cli.md"}
    return wanted | {ROOT / "docs" / "cli.md": cli_reference()}


def main(arguments: list[str]) -> int:
    """Rewrite, or check."""
    stale = [
        (page, text)
        for page, text in documents().items()
        if not page.exists() or page.read_text(encoding="utf-8") != text
    ]
    for page, text in stale:
        name = page.relative_to(ROOT)
        if "--check" in arguments:
            print(f"stale: {name}: run `python docs/build.py`", file=sys.stderr)
        else:
            page.write_text(text, encoding="utf-8")
            print(f"printed {name}")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
