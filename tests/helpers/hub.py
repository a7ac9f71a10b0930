"""A model hub on this machine."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.helpers.cli import Ran

COMMIT, OTHER_COMMIT = "453ed1575b739b5b03ce3758b23befdb0967f40e", "0123456789abcdef0123456789abcdef01234567"
Ask = Callable[..., Ran]


@contextlib.contextmanager
def inside(folder: Path, environment: dict[str, str]) -> Iterator[None]:
    """This process in another folder, with this environment alone and without huggingface_hub."""
    with pytest.MonkeyPatch.context() as patch:
        for name in {*os.environ} - {*environment}:
            patch.delenv(name)
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.chdir(folder)
        patch.setitem(sys.modules, "huggingface_hub", None)
        yield
