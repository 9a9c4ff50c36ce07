"""YAML: values as written, and what is refused with its line."""

from __future__ import annotations

import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from formats.yaml_text import parsed
from primitives.errors import UserError

leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
documents = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner, max_size=3),
    max_leaves=12,
)


@given(documents)
def test_what_was_written_is_read(document: object) -> None:
    assert parsed(yaml.safe_dump(document), "a.yaml") == document


def test_an_empty_text_says_nothing() -> None:
    assert parsed("# only a comment\n", "a.yaml") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("run:\n  epoch: 1s\n  nodes: 2\n  epoch: 2s\n", "a.yaml: line 4: 'epoch' stands twice, first in line 2"),
        ("run: {}\nvm: {}\nrun: {}\n", "a.yaml: line 3: 'run' stands twice, first in line 1"),
        ("- {a: 1, a: 1}", "a.yaml: line 1: 'a' stands twice, first in line 1"),
        ("run: [", "a.yaml is not YAML: line 1: "),
        ("run:\n\tepoch: 1s", "a.yaml is not YAML: line 2: found character '\\t' that cannot start any token"),
        ("{[1]: 2}", "a.yaml is not YAML: line 1: found unhashable key"),
        ("a: \x00", "a.yaml is not YAML: unacceptable character #x0000: special characters are not allowed"),
        ("a: !!python/name:os.system", "a.yaml is not YAML: line 1: could not determine a constructor"),
        ("a: 1\n---\nb: 2", "a.yaml is not YAML: line 2: but found another document"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)) as refused:
        parsed(text, "a.yaml")
    assert "\n" not in str(refused.value)


def test_the_same_key_may_stand_in_different_mappings() -> None:
    assert parsed("a: {x: 1}\nb: {x: 1}", "a.yaml") == {"a": {"x": 1}, "b": {"x": 1}}


def test_a_merged_key_may_be_said_again() -> None:
    assert parsed("a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}\nc: {<<: *a, y: 4}", "a.yaml") == {
        "a": {"x": 1, "y": 2},
        "b": {"x": 3, "y": 2},
        "c": {"x": 1, "y": 4},
    }
