"""Start: how long `seep wordcount` takes from a cold process to its first result."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import seep

#: The first line that tells of rows that have reached the sink. One line comes a second, so up to one is added.
_RESULT = re.compile(r" [1-9][\d,]* rows/s; latency p50 ")


def measure() -> dict[str, float]:
    """Seconds to the first line with a throughput and a latency; the run itself is checked to its end."""
    command = [str(Path(sys.executable).with_name("seep")), "wordcount", "--seconds", "3"]
    begin, first, said = time.monotonic(), None, []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line)
            if first is None and _RESULT.search(line):
                first = time.monotonic() - begin
    if first is None or process.returncode:
        raise seep.InternalError(f"seep wordcount exited with {process.returncode}:\n{''.join(said)}")
    return {"start_s": first}
