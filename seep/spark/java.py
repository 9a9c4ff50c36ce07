"""Finds the Java that Spark would start, and checks its version."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from primitives.errors import EnvironmentFault

OLDEST = 17  #: the oldest Java that Spark 4 supports
_ADVICE = f"install Java {OLDEST} or newer (Debian, Ubuntu: openjdk-{OLDEST}-jre-headless)"


def find_java(environment: Mapping[str, str] = os.environ) -> Path:
    """Returns the program that Spark's scripts would run: below JAVA_HOME if that is set, else on the PATH."""
    home = environment.get("JAVA_HOME")
    if home:
        return _below(Path(home))
    found = shutil.which("java", path=environment.get("PATH", os.defpath))
    if found is None:
        raise EnvironmentFault(f"there is no Java on the PATH, and JAVA_HOME is not set; {_ADVICE}")
    return Path(found)


def _below(home: Path) -> Path:
    program = home / "bin" / "java"
    if not os.access(program, os.X_OK):
        raise EnvironmentFault(f"JAVA_HOME is {str(home)!r}, and there is no {program}; mend it or unset it")
    return program


def java_version(program: Path) -> int:
    """Asks Java for its major version (8 for "1.8.0"); takes about 50 ms."""
    try:
        said = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    except (OSError, subprocess.TimeoutExpired) as reason:
        raise EnvironmentFault(f"{program} does not run ({reason}); {_ADVICE}") from None
    return parse_version(said, program)


def parse_version(said: str, program: Path) -> int:
    """Parses the output of `java -version`.

    >>> parse_version('openjdk version "17.0.15" 2025-04-15', Path("java"))
    17
    >>> parse_version('java version "1.8.0_402"', Path("java"))
    8
    """
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    if not found:
        raise EnvironmentFault(f"{program} -version says nothing of a version ({said.strip()[:100]!r}); {_ADVICE}")
    return int(found[1])


def check_java(environment: Mapping[str, str] = os.environ) -> str:
    """Describes the Java that is found; raises EnvironmentFault if there is none that is new enough."""
    program = find_java(environment)
    version = java_version(program)
    if version < OLDEST:
        raise EnvironmentFault(
            f"{program} is Java {version}, and Spark needs {OLDEST} or newer; {_ADVICE}, "
            "or set JAVA_HOME to a newer one that is there"
        )
    return f"Java {version} ({program})"
