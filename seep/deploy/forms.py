"""Forms: files with blanks such as @{name}, which are filled in so that a missing or misspelt one is an error."""

from __future__ import annotations

from pathlib import Path
from string import Template


class Form(Template):
    """Text whose blanks begin with @, as $ means something else in a shell; @@ stands for one @.

    >>> Form("echo @{text} $HOME").substitute(text="'hello'")
    "echo 'hello' $HOME"
    """

    delimiter = "@"


def read_form(path: Path) -> Form:
    """A form that came with the package."""
    return Form(path.read_text(encoding="utf-8"))
