"""The format of the catalogue's own small files: a first line with kind, length and checksum, then the content."""

from __future__ import annotations

import hashlib
import re

from primitives.errors import Damaged

_LINE = re.compile(rb"seep-([a-z]+) 1 ([0-9a-f]{64}) (\d{1,15})\n")


def wrap(kind: str, content: bytes) -> bytes:
    """
    >>> wrap("seal", b"why").splitlines()[1]
    b'why'
    """
    return b"seep-%s 1 %s %d\n%s" % (kind.encode(), _checksum(kind, content), len(content), content)


def unwrap(data: bytes | memoryview, name: str) -> tuple[str, bytes]:
    """Returns kind and content; raises Damaged if a single bit has changed.

    >>> unwrap(wrap("seal", b"why"), "orders/000000000012.manifest")
    ('seal', b'why')
    """
    found = _LINE.match(data)
    if not found:
        raise Damaged(f"{name} is damaged: it does not begin as a file of seep does")
    kind, content = found[1].decode(), bytes(data[found.end() :])
    if len(content) != int(found[3]):
        raise Damaged(f"{name} is damaged: after its first line come {len(content)} bytes, and not {int(found[3])}")
    if _checksum(kind, content) != found[2]:
        raise Damaged(f"{name} is damaged: its checksum is not that of its content")
    return kind, content


def _checksum(kind: str, content: bytes) -> bytes:
    return hashlib.sha256(kind.encode() + b"\n" + content).hexdigest().encode()
