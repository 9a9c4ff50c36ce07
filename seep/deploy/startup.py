"""Start-up scripts: what a new VM runs to become Spark's master or a worker, the same in every cloud."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from primitives.errors import UserError
from seep.deploy.forms import read_form
from seep.shipped import shipped

#: Where the master listens.
MASTER_PORT = 7077
#: Where the master shows its page.
UI_PORT = 8080

_TEMPLATES = shipped("deploy") / "templates"
_PIN = re.compile(r"^([A-Za-z0-9._-]+==[^\s;\\]+)", re.MULTILINE)


def master_script(environment: str) -> str:
    """For the VM that runs Spark's master."""
    return _install(environment) + _filled("master.sh", port=str(MASTER_PORT), ui_port=str(UI_PORT))


def worker_script(environment: str, master_host: str, cores: int) -> str:
    """For a VM that joins the master as a worker with so many cores, one for each of its nodes."""
    return _install(environment) + _filled("worker.sh", master=master_url(master_host), cores=str(cores))


def master_url(host: str) -> str:
    """Spark's name for a master.

    >>> master_url("10.0.0.5")
    'spark://10.0.0.5:7077'
    """
    return f"spark://{host}:{MASTER_PORT}"


def pins(environment: str) -> str:
    """The versions in a file of pinned requirements, a line each; UserError if the file is not there or pins nothing.

    Hashes are left out, as what a VM is handed at its start has no room for them: 16 KiB at EC2. Those who want them
    checked name a URL instead of a file.
    """
    try:
        found = _PIN.findall(Path(environment).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as reason:
        raise UserError(
            f"environment: {environment} cannot be read ({reason}); name a file of pinned requirements, or its URL"
        ) from reason
    if not found:
        raise UserError(f"environment: {environment} pins nothing; it needs lines such as numpy==2.4.6")
    return "\n".join(found)


def _install(environment: str) -> str:
    is_url = environment.startswith("https://")
    return _filled("install.sh", url=environment if is_url else "", pins="" if is_url else pins(environment))


def _filled(name: str, **values: str) -> str:
    """Every value becomes one word of the shell, whatever is in it."""
    return read_form(_TEMPLATES / name).substitute({key: shlex.quote(value) for key, value in values.items()})
