"""The project's wheel, built as a release would be, and what it asks for in its lowest versions."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
#: So that the checkout is left as it is; and what is installed at once needs no compression.
_BUILD = "[build]\nbuild_base = {scratch}\n[egg_info]\negg_base = {scratch}\n[bdist_wheel]\ncompression = stored\n"


def build_environment(scratch: Path) -> dict[str, str]:
    """For pip where it builds a wheel; `scratch` is where setuptools may put what it makes on the way."""
    settings = scratch / "build.cfg"
    settings.write_text(_BUILD.format(scratch=scratch))
    return os.environ | {"DIST_EXTRA_CONFIG": str(settings), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def build_wheel(scratch: Path) -> Path:
    """The wheel of the checkout, made by the setuptools of this environment; fetches nothing."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    command += ["--wheel-dir", str(scratch / "wheels"), str(ROOT)]
    done = subprocess.run(command, env=build_environment(scratch), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    [wheel] = (scratch / "wheels").glob("*.whl")
    return wheel


def metadata_of(wheel: Path) -> Message:
    """What the wheel says of itself."""
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return HeaderParser().parsestr(archive.read(name).decode())


def asked_for(wheel: Path) -> list[Requirement]:
    """What the wheel needs to run, with its extras, but for those who work on it."""
    found = [Requirement(line) for line in metadata_of(wheel).get_all("Requires-Dist") or ()]
    return [each for each in found if each.marker is None or not each.marker.evaluate({"extra": "dev"})]


def lowest(asked: Iterable[Requirement]) -> list[str]:
    """Pins of the versions from which on each of them will do.

    >>> lowest([Requirement("pandas>=2.2,<3")])
    ['pandas==2.2']
    """
    return [f"{each.name}=={bound.version}" for each in asked for bound in each.specifier if bound.operator == ">="]


def locked() -> list[str]:
    """The pins of requirements.lock, without their hashes."""
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    return [line.split()[0] for line in lines if "==" in line and not line.startswith((" ", "#"))]
