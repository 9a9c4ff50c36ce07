"""Forms: text files with placeholders such as @{name}; a missing or misspelt value is an error."""

from __future__ import annotations

from pathlib import Path
from string import Template


class Form(Template):
    """Text with placeholders that begin with @, because $ has a meaning in a shell; @@ stands for one @.

    >>> Form("echo @{text} $HOME").substitute(text="'hello'")
    "echo 'hello' $HOME"
    """

    delimiter = "@"


def read_form(path: Path) -> Form:
    """Reads a form that is shipped with the package."""
    return Form(path.read_text(encoding="utf-8"))
