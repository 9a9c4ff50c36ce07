"""Holders that work later than they are called, as in real processes, where each has its own thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from seep.kernel.mail import OwnWork
from seep.protocol.effects import Effect
from seep.protocol.holder import Holder, HolderLetter
from seep.protocol.instances.instance import Instance
from seep.protocol.view import View


class MailedHosting:
    """A `Hosting` that puts the work of the node's holder in the mail; instances work in the call itself."""

    def __init__(self, mail: Callable[[OwnWork], None]) -> None:
        self._mail = mail

    def instance(self, instance: Instance[Any]) -> Instance[Any]:
        return instance

    def holder(self, holder: Holder) -> _MailedHolder:
        return _MailedHolder(holder, self._mail)


class _MailedHolder:
    """A holder that returns no effects; they come when the mail delivers its work."""

    def __init__(self, holder: Holder, mail: Callable[[OwnWork], None]) -> None:
        self._holder, self._mail = holder, mail

    def on_view(self, view: View) -> None:
        self._mail(OwnWork(lambda: self._take_view(view)))

    def receive(self, sender: str, letter: HolderLetter) -> list[Effect]:
        self._mail(OwnWork(lambda: self._holder.receive(sender, letter)))
        return []

    def _take_view(self, view: View) -> list[Effect]:
        self._holder.on_view(view)
        return []
