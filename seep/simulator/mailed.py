"""Holders behind mailboxes: they get to their work when they get to it, as those on a thread of their own do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from seep.protocol.effects import Effect
from seep.protocol.holder import Holder
from seep.protocol.instance import Instance

#: Something for a holder to do, and what it causes then.
Work = Callable[[], list[Effect]]


class BehindMailbox:
    """A `Hosting` that puts what its node's holder has to do in the mail; instances work in the call itself."""

    def __init__(self, mail: Callable[[Work], None]) -> None:
        self._mail = mail

    def instance(self, instance: Instance[Any]) -> Instance[Any]:
        return instance

    def holder(self, holder: Holder) -> Any:
        return _MailedHolder(holder, self._mail)


class _MailedHolder:
    """A holder that answers nothing: what it has to say it says later."""

    def __init__(self, holder: Holder, mail: Callable[[Work], None]) -> None:
        self._holder, self._mail = holder, mail
        self.store = holder.store

    def __getattr__(self, name: str) -> Callable[..., list[Effect]]:
        method = getattr(self._holder, name)

        def enqueue(*arguments: Any) -> list[Effect]:
            self._mail(lambda: method(*arguments) or [])
            return []

        return enqueue
