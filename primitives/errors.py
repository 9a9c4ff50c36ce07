"""The error tree: your mistake, your environment, or our bug. Everything `seep` raises is one of the three."""

from __future__ import annotations

#: The name of the distribution on the package index; the package named `seep` there belongs to someone else.
DISTRIBUTION = "seep-streaming"


class SeepError(Exception):
    """Root of all errors raised by this project."""


class UserError(SeepError):
    """Something the user wrote or configured is wrong; the message names it and says what to do."""


class EnvironmentFault(SeepError):
    """The environment failed (disk, network, a lost machine); the query may be right."""


class Damaged(EnvironmentFault):
    """Stored bytes have changed since they were written."""


class InternalError(SeepError):
    """A rule of the project itself was broken: a bug in `seep`, never the user's fault."""


def install_command(extra: str) -> str:
    """Returns the command that installs an extra of the distribution, for messages about a missing library.

    >>> install_command("cloud")
    "pip install 'seep-streaming[cloud]'"
    """
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def encodable(text: str) -> str:
    """Returns the text with escapes for what UTF-8 cannot have, such as the bytes of odd file names."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
