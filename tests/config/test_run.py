"""The section `run` says what `RunOptions` take, and nothing else of them."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from pydantic import ValidationError

from primitives.errors import UserError
from seep.config.policy import PolicyFile, RunSection
from seep.driver.options import RunOptions

OPTIONS = {each.name for each in fields(RunOptions)}
SECTIONS = PolicyFile.model_fields.keys() & OPTIONS


def test_every_option_of_a_run_stands_in_the_file() -> None:
    assert (OPTIONS & RunSection.model_fields.keys()) | SECTIONS == OPTIONS


def test_defaults_of_the_file_are_those_of_the_options() -> None:
    file, options = PolicyFile(), RunOptions()
    assert {name: getattr(file.run, name) for name in OPTIONS - SECTIONS} == {
        name: getattr(options, name) for name in OPTIONS - SECTIONS
    }
    assert {name: getattr(file, name) for name in SECTIONS} == {name: getattr(options, name) for name in SECTIONS}


@pytest.mark.parametrize(
    ("field", "value"),
    [("epoch", 0), ("checkpoint", -1), ("window", 0), ("nodes", 0), ("spare", -1), ("recovery_parallelism", 0)],
)
def test_the_file_refuses_what_the_options_refuse(field: str, value: int) -> None:
    with pytest.raises(UserError, match=field):
        RunOptions(**{field: value})  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match=field):
        RunSection.model_validate({field: value})


def test_only_what_is_said_is_given() -> None:
    assert RunSection().given() == {}
    assert RunSection.model_validate({"epoch": "50ms", "seconds": "none"}).given() == {"epoch": 0.05, "seconds": None}


def test_a_certificate_is_given_as_the_options_take_it() -> None:
    section = RunSection.model_validate({"tls": {"certificate": "c.pem", "key": "k.pem"}})
    assert section.given() == {"tls": (Path("c.pem"), Path("k.pem"))}


def test_no_limit_can_be_said_of_a_rate() -> None:
    assert RunSection.model_validate({"rate": "max"}).given() == {"rate": None}
