"""Start-up scripts, by which a new VM becomes Spark's master or a worker, the same in every cloud."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from primitives.errors import UserError
from seep.deploy.forms import read_form
from seep.shipped import shipped

#: The port of the master.
MASTER_PORT = 7077
#: The port of the master's web page.
UI_PORT = 8080

_TEMPLATES = shipped("deploy") / "templates"
_PIN = re.compile(r"^([A-Za-z0-9._-]+==[^\s;\\]+)", re.MULTILINE)


def master_script(environment: str) -> str:
    """Returns the script for the VM with Spark's master."""
    return _install(environment) + _filled("master.sh", port=str(MASTER_PORT), ui_port=str(UI_PORT))


def worker_script(environment: str, master_host: str, cores: int) -> str:
    """Returns the script for a VM that joins the master as a worker, with a core for each of its nodes."""
    return _install(environment) + _filled("worker.sh", master=master_url(master_host), cores=str(cores))


def master_url(host: str) -> str:
    """Returns Spark's URL of a master.

    >>> master_url("10.0.0.5")
    'spark://10.0.0.5:7077'
    """
    return f"spark://{host}:{MASTER_PORT}"


def pins(environment: str) -> str:
    """Returns the versions in a file of pinned requirements, a line each; UserError if it is missing or has none.

    Hashes are left out, because the start-up script of a VM is too small for them: 16 KiB in EC2. To check hashes, name
    a URL instead of a file.
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
    """Fills a form; every value becomes one word of the shell, by quoting."""
    return read_form(_TEMPLATES / name).substitute({key: shlex.quote(value) for key, value in values.items()})
