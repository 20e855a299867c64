"""Assertions in the shipped contracts explain themselves like those in tests."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tutti.testing.contracts")
