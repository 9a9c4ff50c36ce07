"""What a key may look like, so that every back end can keep it and none can be led out of its own place."""

from __future__ import annotations

import re

from primitives.errors import InternalError, UserError

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=+-]*")
_LONGEST_PART = 200  #: with what a file system may need besides, within the 255 bytes of a name
_LONGEST = 900  #: with a prefix, within the 1,024 bytes of S3


def checked_key(key: str) -> str:
    """The key, if it is one.

    >>> checked_key("orders/000000000012/counter/0-totals")
    'orders/000000000012/counter/0-totals'
    >>> checked_key("../orders")
    Traceback (most recent call last):
    primitives.errors.UserError: '../orders' cannot be a key of a store: its part '..' is no name; names are made of \
letters, digits and _ . = + -, begin with a letter, a digit or _, and have at most 200 characters
    """
    for part in key.split("/"):
        if not _PART.fullmatch(part) or len(part) > _LONGEST_PART:
            raise UserError(
                f"{key!r} cannot be a key of a store: its part {part!r} is no name; names are made of letters, digits "
                f"and _ . = + -, begin with a letter, a digit or _, and have at most {_LONGEST_PART} characters"
            )
    if len(key) > _LONGEST:
        raise UserError(f"{key!r} cannot be a key of a store: it has more than {_LONGEST} characters")
    return key


def directory_of(prefix: str) -> str | None:
    """What all keys that begin so have before their last slash in common; None if no key begins so.

    >>> directory_of("orders/0000"), directory_of("orders"), directory_of("/etc/")
    ('orders', '', None)
    """
    *directories, _ = prefix.split("/")
    return "/".join(directories) if all(map(_PART.fullmatch, directories)) else None


def checked_range(start: int, length: int | None) -> None:
    """Refuses a range that no value has, before back ends take it for different things."""
    if start < 0 or (length is not None and length < 0):
        raise InternalError(f"a range of a value begins at {start} and has {length} bytes; neither may be negative")
