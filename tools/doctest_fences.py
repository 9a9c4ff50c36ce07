"""Examples in docstrings become blocks of code in the API reference; Markdown would take them for quotations."""

from __future__ import annotations

from typing import Any

from griffe import Extension


def fenced(text: str) -> str:
    """The text with each example, from its first prompt to the next empty line, in a block of code.

    >>> print(fenced("Adds.\\n\\n>>> 1 + 1\\n2\\n\\nThat is all."))
    Adds.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    <BLANKLINE>
    That is all.
    """
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        if not inside and line.startswith(">>> "):
            inside = True
            lines.append("```pycon")
        elif inside and not line.strip():
            inside = False
            lines.append("```")
        lines.append(line)
    return "\n".join([*lines, "```"] if inside else lines)


class DoctestFences(Extension):
    """Changes docstrings as they are read."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """See `Extension`."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
