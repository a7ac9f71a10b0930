"""The tests."""

import pytest

pytest.register_assert_rewrite("tests.helpers")
