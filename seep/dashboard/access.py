"""Access: who may use the dashboard of a run; tokens, login codes, and sessions of browsers, all bounded."""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

from primitives.errors import UserError

#: Seconds within which a login code can be used, and the most unused ones; the oldest are dropped.
CODE_SECONDS, CODES = 300.0, 32
#: Seconds after which a browser has to log in again, and the most sessions; the oldest are dropped.
SESSION_SECONDS, SESSIONS = 7 * 86400.0, 256
#: The most wrong tokens of one address, and of all together, within a time; further tokens are then not looked at.
WRONG_OF_ONE, WRONG_OF_ALL, WRONG_SECONDS = 10, 200, 60.0
#: The most addresses whose wrong tokens are counted one by one; the oldest are dropped.
_ADDRESSES = 1024
#: The fewest and the most characters of a token.
SHORTEST, LONGEST = 20, 512

Clock = Callable[[], float]
T = TypeVar("T")


class Role(StrEnum):
    """What a visitor may do: a viewer reads, an operator also acts. An operator is the greater of the two.

    >>> Role.VIEWER < Role.OPERATOR, Role.OPERATOR.may(Role.VIEWER), Role.VIEWER.may(Role.OPERATOR)
    (True, True, False)
    """

    VIEWER = "viewer"
    OPERATOR = "operator"

    @property
    def rank(self) -> int:
        return tuple(Role).index(self)

    def may(self, needed: Role) -> bool:
        """Whether a visitor with this role may do what needs that one."""
        return self.rank >= needed.rank

    # Without these, roles would be compared by the alphabet, as any texts.

    def __lt__(self, other: str) -> bool:
        return self.rank < Role(other).rank

    def __le__(self, other: str) -> bool:
        return self.rank <= Role(other).rank

    def __gt__(self, other: str) -> bool:
        return self.rank > Role(other).rank

    def __ge__(self, other: str) -> bool:
        return self.rank >= Role(other).rank


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who asks: with a token of a program, or with the session of a browser."""

    role: Role
    csrf: str | None = field(default=None, repr=False)  #: what the page must send with unsafe requests; None: a token


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """What a browser gets when it logs in: its cookie, and the value that its page must send with unsafe requests."""

    cookie: str = field(repr=False)
    visitor: Visitor


class TooManyWrongTokens(Exception):
    """Too many wrong tokens have come lately; `seconds` is, as text, the time until the next is looked at."""

    def __init__(self, wait: float) -> None:
        self.seconds = str(math.ceil(wait))
        super().__init__(f"too many wrong tokens; the next one is looked at in {self.seconds} s")


class Access:
    """The tokens, login codes and sessions of one dashboard; for any thread.

    Secrets are kept as hashes only, except the two tokens; whatever visitors send is compared by its hash, and in
    constant time.

    >>> access = Access()
    >>> session = access.redeem(access.login_code(Role.VIEWER))
    >>> access.visitor_with(session.cookie).role
    <Role.VIEWER: 'viewer'>
    >>> access.role_of("hunter22") is None
    True
    """

    def __init__(
        self, operator_token: str | None = None, viewer_token: str | None = None, *, clock: Clock = time.monotonic
    ) -> None:
        """Takes the tokens, or makes them. Raises UserError for a token that is too short, or given for both roles."""
        self.operator_token = checked_token(operator_token, "the token of operators") or secrets.token_urlsafe(32)
        self.viewer_token = checked_token(viewer_token, "the token of viewers") or secrets.token_urlsafe(32)
        if self.operator_token == self.viewer_token:
            raise UserError("operators and viewers of the dashboard have the same token; give them different ones")
        self._tokens = {Role.OPERATOR: _hash(self.operator_token), Role.VIEWER: _hash(self.viewer_token)}
        self._lock = threading.Lock()  #: guards all below
        self._codes = _Expiring[Role](CODES, CODE_SECONDS, clock)
        self._sessions = _Expiring[Visitor](SESSIONS, SESSION_SECONDS, clock)
        self._wrong = _WrongTokens(clock)

    def __repr__(self) -> str:
        return f"<Access with {len(self._sessions)} sessions and {len(self._codes)} unused login codes>"

    @property
    def secrets(self) -> tuple[str, str]:
        """What no log line, event or report may show."""
        return self.operator_token, self.viewer_token

    # -- tokens -------------------------------------------------------------------------------------------------------

    def role_of(self, token: str) -> Role | None:
        """Returns the role of whoever has this token; None for an unknown one."""
        given = _hash(token)
        found = [role for role, known in self._tokens.items() if hmac.compare_digest(known, given)]
        return found[0] if found else None

    def admit(self, token: str, address: str) -> Role | None:
        """Returns the role for a token from an address, and counts wrong ones. Raises TooManyWrongTokens."""
        with self._lock:
            self._wrong.check(address)
            role = self.role_of(token)
            if role is None:
                self._wrong.count(address)
        return role

    # -- login codes --------------------------------------------------------------------------------------------------

    def login_code(self, role: Role = Role.OPERATOR) -> str:
        """Makes a code that logs a browser in, once, within five minutes."""
        code = secrets.token_urlsafe(32)
        with self._lock:
            self._codes.put(_hash(code), role)
        return code

    def redeem(self, code: str) -> BrowserSession | None:
        """Opens a session for a login code; None if it is unknown, too old or used."""
        with self._lock:
            role = self._codes.pop(_hash(code))
        return None if role is None else self.open_session(role)

    # -- sessions of browsers -----------------------------------------------------------------------------------------

    def open_session(self, role: Role) -> BrowserSession:
        opened = BrowserSession(secrets.token_urlsafe(32), Visitor(role, secrets.token_urlsafe(32)))
        with self._lock:
            self._sessions.put(_hash(opened.cookie), opened.visitor)
        return opened

    def visitor_with(self, cookie: str) -> Visitor | None:
        """Returns the visitor whose browser sends this cookie; None if its session is unknown or over."""
        with self._lock:
            return self._sessions.get(_hash(cookie))

    def close_session(self, cookie: str) -> None:
        """Ends a session, if there is one with this cookie."""
        with self._lock:
            self._sessions.pop(_hash(cookie))

    @property
    def sessions(self) -> int:
        """The number of sessions that are not over."""
        with self._lock:
            return len(self._sessions)


def same_secret(given: str, known: str) -> bool:
    """Whether two secrets are the same; takes equally long for any wrong one."""
    return hmac.compare_digest(_hash(given), _hash(known))


def checked_token(token: str | None, name: str) -> str | None:
    """Returns a token as it is. Raises UserError, which begins with `name`, if it is too weak or fits into no header.

    >>> checked_token("too-short", "SEEP_TOKEN")
    Traceback (most recent call last):
    primitives.errors.UserError: SEEP_TOKEN has 9 characters; a token needs 20 to 512, ...
    """
    if token is None:
        return None
    if not SHORTEST <= len(token) <= LONGEST:
        raise UserError(
            f"{name} has {len(token)} characters; a token needs {SHORTEST} to {LONGEST}, such as those of: "
            'python -c "import secrets; print(secrets.token_urlsafe(32))"'
        )
    if not all("!" <= character <= "~" for character in token):
        raise UserError(f"{name} has a space or a character that is not ASCII; make it of letters, digits, - and _")
    return token


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


class _Expiring(Generic[T]):
    """Values by the hashes of secrets: at most so many, each for so many seconds; the oldest go first."""

    def __init__(self, most: int, seconds: float, clock: Clock) -> None:
        self._most, self._seconds, self._clock = most, seconds, clock
        self._held: OrderedDict[bytes, tuple[float, T]] = OrderedDict()  #: hash -> end and value, the oldest first

    def __len__(self) -> int:
        self._drop_old()
        return len(self._held)

    def put(self, key: bytes, value: T) -> None:
        self._drop_old()
        while len(self._held) >= self._most:
            self._held.popitem(last=False)
        self._held[key] = (self._clock() + self._seconds, value)

    def get(self, key: bytes) -> T | None:
        self._drop_old()
        found = self._held.get(key)
        return found[1] if found else None

    def pop(self, key: bytes) -> T | None:
        found = self.get(key)
        self._held.pop(key, None)
        return found

    def _drop_old(self) -> None:
        now = self._clock()
        while self._held and next(iter(self._held.values()))[0] <= now:
            self._held.popitem(last=False)


class _WrongTokens:
    """The times of the newest wrong tokens, by address and of all."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._of_all = deque[float](maxlen=WRONG_OF_ALL)
        self._by_address: OrderedDict[str, deque[float]] = OrderedDict()  #: that of the newest wrong token last

    def check(self, address: str) -> None:
        """Raises TooManyWrongTokens if so many have come lately that no further one is looked at."""
        wait = max(self._wait(self._of_all), self._wait(self._by_address.get(address, deque())))
        if wait > 0:
            raise TooManyWrongTokens(wait)

    def count(self, address: str) -> None:
        of_one = self._by_address.pop(address, None) or deque(maxlen=WRONG_OF_ONE)
        while len(self._by_address) >= _ADDRESSES:
            self._by_address.popitem(last=False)
        self._by_address[address] = of_one
        for times in (of_one, self._of_all):
            times.append(self._clock())

    def _wait(self, times: deque[float]) -> float:
        """Returns the seconds until fewer than the most are new; 0 or less if they are fewer now."""
        return times[0] + WRONG_SECONDS - self._clock() if len(times) == times.maxlen else 0.0
