"""Kernels are kept on disk, and what an earlier version of their module has left there does no harm."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
from typing import NamedTuple

from primitives.kernels import kernel


class {name}(NamedTuple):
    first: int


@kernel
def twice(of):
    return {factor} * of.first


print(twice({name}(21)), sum(twice.stats.cache_hits.values()))
"""


def write(where: Path, name: str, factor: int) -> None:
    """The program, with the class named so; the line of the kernel stays the same."""
    (where / "program.py").write_text(PROGRAM.format(name=name, factor=factor))


def printed(where: Path) -> str:
    """What a process prints that runs the program: a result, and how many kernels it has found compiled."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(where), str(Path.cwd())])}
    command = [sys.executable, "-c", "import program"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_kernel_is_kept_for_the_next_process_until_its_module_changes(tmp_path: Path) -> None:
    write(tmp_path, "Pair", 2)
    assert [printed(tmp_path), printed(tmp_path)] == ["42 0\n", "42 1\n"]
    write(tmp_path, "Couple", 3)
    assert printed(tmp_path) == "63 0\n", "what is on disk names a class that is gone"
