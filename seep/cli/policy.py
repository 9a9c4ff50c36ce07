"""Policy files: the options of a run as YAML, checked field by field."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    ValidationError,
)

from primitives.durations import optional_seconds, seconds
from primitives.errors import UserError
from seep.sources.rate import Profile

Seconds = Annotated[float, BeforeValidator(seconds)]
OptionalSeconds = Annotated[float | None, BeforeValidator(optional_seconds)]


class _Section(BaseModel):
    """Refuses what it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Certificate(_Section):
    """The user's own certificate and key, as PEM files."""

    certificate: Path
    key: Path


class RunSection(_Section):
    """How a query is run: the fields of `RunOptions`, and more that flags can say. Only what is given counts."""

    epoch: Seconds = 0.05
    checkpoint: OptionalSeconds = 5.0
    window: int = 16
    nodes: int | None = None
    spare: int = 1
    recovery_parallelism: int = 1
    heartbeat: Seconds = 0.1
    patience: Seconds = 3.0
    start_timeout: Seconds = 60.0
    buffer_budget: ByteSize = ByteSize(256 << 20)
    tls: bool | Certificate = False
    seconds: OptionalSeconds = None
    parallelism: dict[str, PositiveInt] = Field(default_factory=dict)
    rate: PositiveFloat | None = None
    rate_profile: Profile = Profile.STEADY
    rate_period: Seconds = 60.0

    def given(self) -> dict[str, Any]:
        """What the file says, as `RunOptions` and `Rate` take it."""
        said: dict[str, Any] = {name: getattr(self, name) for name in self.model_fields_set}
        if isinstance(self.tls, Certificate):
            said["tls"] = (self.tls.certificate, self.tls.key)
        return said


class Policy(_Section):
    """A whole file."""

    run: RunSection = RunSection()


def read_policy(path: Path) -> dict[str, Any]:
    """What the section `run` of a file gives; UserError that names the file and the field for anything wrong."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as reason:
        raise UserError(f"policy {path} cannot be read: {reason.strerror}") from reason
    except (yaml.YAMLError, UnicodeDecodeError) as reason:
        raise UserError(f"policy {path} is not YAML: {reason}") from reason
    try:
        return Policy.model_validate({} if content is None else content).run.given()
    except ValidationError as reason:
        problems = "; ".join(_in_words(error) for error in reason.errors())
        raise UserError(f"policy {path}: {problems}") from reason


def _in_words(error: Any) -> str:
    where = ".".join(map(str, error["loc"])) or "the file"
    if error["type"] == "extra_forbidden":
        section = RunSection if error["loc"][0] == "run" and len(error["loc"]) == 2 else Policy
        return f"{where} is unknown; known are {', '.join(section.model_fields)}"
    return f"{where} is {error['input']!r}: {error['msg'].removeprefix('Value error, ')}"
