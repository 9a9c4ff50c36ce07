"""What the packages are installed as: the name of the distribution, and the command that installs one of its extras."""

from __future__ import annotations

#: The name on the package index; `seep` there is a package of somebody else.
DISTRIBUTION = "seep-streaming"


def install_command(extra: str) -> str:
    """What an error tells to run where a library of an extra is missing.

    >>> install_command("cloud")
    "pip install 'seep-streaming[cloud]'"
    """
    return f"pip install '{DISTRIBUTION}[{extra}]'"
