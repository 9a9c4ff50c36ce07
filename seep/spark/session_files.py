"""The directory of a Spark session: it goes with the session, or with the next one if its program was killed."""

from __future__ import annotations

import json
import shutil
import tempfile
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path

from seep.channels.process import ProcessId

_PREFIX = "seep-spark-"
#: The file that names the process which the directory belongs to.
_OWNER = "owner.json"


def make_session_directory() -> Path:
    """Makes a directory that belongs to this process; removes those whose processes have ended without doing so."""
    for each in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        if _is_abandoned(each):
            shutil.rmtree(each, ignore_errors=True)
    made = Path(tempfile.mkdtemp(prefix=_PREFIX))
    (made / _OWNER).write_text(json.dumps(astuple(ProcessId.this())), encoding="utf-8")
    return made


def _is_abandoned(directory: Path) -> bool:
    """Whether its process was one of this machine, and has ended; False if that is not known."""
    with suppress(OSError, ValueError, TypeError):
        owner = ProcessId(*json.loads((directory / _OWNER).read_bytes()))
        return owner.is_local and not owner.alive()
    return False
