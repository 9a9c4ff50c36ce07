"""Answers as JSON: whatever the texts of a run are, there is an answer."""

from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from primitives.errors import encodable
from seep.dashboard.encoding import json_bytes

TEXTS = st.text(st.characters(exclude_categories=()) | st.sampled_from("\ud800\udfff\x00\u202e\u2028<>&"))
VALUES = st.recursive(
    TEXTS | st.integers(-(2**53), 2**53) | st.floats() | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4) | st.tuples(inner, inner),
)


def in_json(value: Any) -> Any:
    """What a reader of the JSON is to find."""
    match value:
        case str():
            return encodable(value)
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {encodable(name): in_json(each) for name, each in value.items()}
        case list() | tuple():
            return [in_json(each) for each in value]
    return value


@given(VALUES)
def test_every_value_has_an_encoding_from_which_it_can_be_read(value: Any) -> None:
    assert json.loads(json_bytes(value).decode("utf-8")) == in_json(value)
