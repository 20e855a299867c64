"""Inputs and effects are values."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest

from tutti.flow.dispatcher.messages import Effect, Input


@pytest.mark.parametrize("kind", [*get_args(Input), *get_args(Effect)])
def test_a_message_cannot_be_changed_and_needs_no_garbage_collection(kind: type[msgspec.Struct]) -> None:
    assert kind.__struct_config__.frozen
    assert not kind.__struct_config__.gc


def test_no_message_is_both_an_input_and_an_effect() -> None:
    assert not set(get_args(Input)) & set(get_args(Effect))
