"""Tokens, login codes and sessions: who gets in, for how long, and how many there can be; against a plain model."""

from __future__ import annotations

import ast
import inspect
import json
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from primitives.errors import UserError
from seep.dashboard import access as module
from seep.dashboard.access import (
    CODE_SECONDS,
    CODES,
    SESSION_SECONDS,
    SESSIONS,
    WRONG_OF_ALL,
    WRONG_OF_ONE,
    WRONG_SECONDS,
    Access,
    Role,
    TooManyWrongTokens,
    Visitor,
    checked_token,
)

ROLES = st.sampled_from(Role)
#: The bounds of a small access, which a test comes to quickly.
FEW_CODES, FEW_SESSIONS = 3, 4


@dataclass
class Clock:
    """A clock that a test sets."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def test_an_operator_may_all_and_a_viewer_only_read() -> None:
    assert [[role.may(needed) for needed in Role] for role in Role] == [[True, False], [True, True]]


@given(ROLES, ROLES)
def test_roles_are_compared_by_what_they_permit_also_as_texts_of_json(one: Role, other: Role) -> None:
    assert (one >= other, one > other) == (one.may(other), one.may(other) and one != other)
    assert (one <= other, one < other) == (other.may(one), other.may(one) and one != other)
    assert Role(json.loads(json.dumps(one))) is one


@given(st.text(), st.text(alphabet="abcdefgh", min_size=20, max_size=40))
def test_a_token_has_its_role_and_any_other_text_has_none(text: str, token: str) -> None:
    access = Access(token)
    assert access.role_of(token) is Role.OPERATOR
    assert access.role_of(access.viewer_token) is Role.VIEWER
    assert (access.role_of(text) is None) == (text != token)
    for near in (token[:-1], f"{token}x", token.upper(), f" {token}", f"{token}\0", ""):
        assert access.role_of(near) is None


def test_tokens_that_are_made_are_long_and_different() -> None:
    made = {token for _ in range(50) for token in Access().secrets}
    assert len(made) == 100
    assert min(map(len, made)) >= 43  # 32 bytes of chance


@pytest.mark.parametrize(
    "token", ["", "short", "x" * 19, "x" * 513, "with a space in between it", "ü" * 30, "x" * 30 + "\n"]
)
def test_a_token_that_is_weak_or_fits_into_no_header_is_refused_without_being_shown(token: str) -> None:
    with pytest.raises(UserError, match=r"^SEEP_TOKEN has ") as caught:
        checked_token(token, "SEEP_TOKEN")
    assert not token or token not in str(caught.value)


def test_the_two_roles_must_have_different_tokens() -> None:
    with pytest.raises(UserError, match="the same token; give them different ones") as caught:
        Access("x" * 20, "x" * 20)
    assert "x" * 20 not in str(caught.value)


@given(ROLES, st.floats(0, 2 * CODE_SECONDS))
def test_a_code_logs_in_within_five_minutes_only(role: Role, later: float) -> None:
    clock = Clock()
    access = Access(clock=clock)
    code = access.login_code(role)
    ends = clock.now + CODE_SECONDS
    clock.now += later
    session = access.redeem(code)
    assert (session is not None) == (clock.now < ends)
    if session is not None:
        assert session.visitor.role is role


@given(st.integers(1, 5))
def test_a_code_logs_in_once(tries: int) -> None:
    access = Access()
    code = access.login_code()
    assert [access.redeem(code) is not None for _ in range(1 + tries)] == [True] + [False] * tries
    assert access.sessions == 1


@given(st.text())
def test_what_was_never_a_code_or_a_cookie_opens_nothing(text: str) -> None:
    access = Access()
    code, session = access.login_code(), access.open_session(Role.OPERATOR)
    assert access.redeem(text) is None
    assert access.visitor_with(text) is None
    access.close_session(text)
    assert access.visitor_with(session.cookie) == session.visitor
    for other in (code, session.visitor.csrf, *access.secrets):
        assert access.visitor_with(other) is None  # a secret of one kind is none of another
    assert access.redeem(session.cookie) is None
    assert access.role_of(session.cookie) is access.role_of(code) is None


@pytest.mark.parametrize(
    "hidden", [lambda it: repr(it), lambda it: repr(it.open_session(Role.VIEWER)), lambda it: str(vars(it))]
)
def test_what_access_looks_like_in_a_traceback_has_no_secret_of_a_visitor(hidden: object) -> None:
    access = Access()
    code, session = access.login_code(), access.open_session(Role.VIEWER)
    shown = hidden(access)
    assert not any(secret in shown for secret in (code, session.cookie, session.visitor.csrf))


class Sessions(RuleBasedStateMachine):
    """Codes and sessions against a model that is a list of all that there ever was."""

    @dataclass
    class Entry:
        secret: str
        role: Role
        ends: float
        is_gone: bool = False

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(module, "CODES", FEW_CODES)
            patched.setattr(module, "SESSIONS", FEW_SESSIONS)
            self.access = Access(clock=self.clock)
        self.codes: list[Sessions.Entry] = []
        self.sessions: list[Sessions.Entry] = []

    def _alive(self, entries: list[Sessions.Entry], most: int) -> list[Sessions.Entry]:
        return [entry for entry in entries if not entry.is_gone and entry.ends > self.clock.now][-most:]

    def _put(self, entries: list[Sessions.Entry], most: int, secret: str, role: Role, seconds: float) -> None:
        alive = self._alive(entries, most)
        if len(alive) == most:
            alive[0].is_gone = True
        entries.append(self.Entry(secret, role, self.clock.now + seconds))

    @rule(role=ROLES, count=st.integers(1, 5))
    def make_codes(self, role: Role, count: int) -> None:
        for _ in range(count):
            self._put(self.codes, FEW_CODES, self.access.login_code(role), role, CODE_SECONDS)

    @rule(role=ROLES, count=st.integers(1, 6))
    def open_sessions(self, role: Role, count: int) -> None:
        for _ in range(count):
            self._put(self.sessions, FEW_SESSIONS, self.access.open_session(role).cookie, role, SESSION_SECONDS)

    @precondition(lambda self: self.codes)
    @rule(data=st.data())
    def redeem(self, data: st.DataObject) -> None:
        entry = data.draw(st.sampled_from(self.codes))
        is_good = entry in self._alive(self.codes, FEW_CODES)
        session = self.access.redeem(entry.secret)
        assert (session is not None) == is_good
        entry.is_gone = True
        if session is not None:
            assert session.visitor.role is entry.role
            self._put(self.sessions, FEW_SESSIONS, session.cookie, entry.role, SESSION_SECONDS)

    @precondition(lambda self: self.sessions)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        entry = data.draw(st.sampled_from(self.sessions))
        self.access.close_session(entry.secret)
        entry.is_gone = True

    @rule(seconds=st.sampled_from([1.0, CODE_SECONDS - 1, CODE_SECONDS, SESSION_SECONDS / 2, SESSION_SECONDS]))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds

    @invariant()
    def those_are_in_who_should_be(self) -> None:
        alive = self._alive(self.sessions, FEW_SESSIONS)
        assert self.access.sessions == len(alive) <= FEW_SESSIONS
        for entry in (*self.sessions[:2], *self.sessions[-2:], *alive[:2]):
            visitor = self.access.visitor_with(entry.secret)
            assert (visitor.role if visitor else None) == (entry.role if entry in alive else None)


test_codes_and_sessions_are_bounded_and_end_in_time = Sessions.TestCase


def test_of_many_codes_and_sessions_the_newest_are_good() -> None:
    access = Access()
    codes = [access.login_code() for _ in range(CODES + 1)]
    assert [access.redeem(code) is not None for code in codes] == [False] + [True] * CODES
    cookies = [access.open_session(Role.VIEWER).cookie for _ in range(SESSIONS + 1)]
    assert [access.visitor_with(cookie) is not None for cookie in cookies] == [False] + [True] * SESSIONS


def test_each_session_has_a_cookie_and_a_csrf_value_of_its_own() -> None:
    access = Access()
    opened = [access.open_session(Role.VIEWER) for _ in range(50)]
    assert len({each.cookie for each in opened} | {each.visitor.csrf for each in opened}) == 100


# -- wrong tokens ---------------------------------------------------------------------------------------------------


def wrong(access: Access, address: str, times: int) -> int:
    """Tries wrong tokens; returns how many were looked at."""
    for tried in range(times):
        try:
            assert access.admit("wrong" * 5, address) is None
        except TooManyWrongTokens:
            return tried
    return times


def test_after_some_wrong_tokens_no_further_one_of_the_address_is_looked_at_for_a_minute() -> None:
    clock = Clock()
    access = Access(clock=clock)
    assert wrong(access, "192.0.2.1", 1000) == WRONG_OF_ONE
    with pytest.raises(TooManyWrongTokens, match="in 60 s") as caught:
        access.admit(access.operator_token, "192.0.2.1")  # a right one would tell that the others were wrong
    assert caught.value.seconds == "60"
    assert access.admit(access.operator_token, "192.0.2.2") is Role.OPERATOR
    clock.now += WRONG_SECONDS
    assert access.admit(access.operator_token, "192.0.2.1") is Role.OPERATOR


def test_the_wrong_tokens_of_all_addresses_together_are_bounded_too() -> None:
    clock = Clock()
    access = Access(clock=clock)
    assert sum(wrong(access, f"10.0.{number // 256}.{number % 256}", 1) for number in range(5000)) == WRONG_OF_ALL
    clock.now += WRONG_SECONDS
    assert wrong(access, "10.0.0.1", 1) == 1


def test_a_browser_that_is_logged_in_and_a_login_code_are_not_held_up_by_wrong_tokens_of_others() -> None:
    access = Access()
    session, code = access.open_session(Role.OPERATOR), access.login_code()
    assert wrong(access, "127.0.0.1", 1000) == WRONG_OF_ONE
    assert access.visitor_with(session.cookie) == session.visitor
    assert access.redeem(code) is not None


def test_right_tokens_do_not_count() -> None:
    access = Access()
    assert {access.admit(access.viewer_token, "127.0.0.1") for _ in range(1000)} == {Role.VIEWER}


def test_what_is_remembered_of_addresses_is_bounded() -> None:
    clock = Clock()
    access = Access(clock=clock)
    for number in range(4 * module._ADDRESSES):
        clock.now += 1.0  # slow enough for the bound of all together
        assert wrong(access, f"10.1.{number // 256}.{number % 256}", 1) == 1
    assert len(access._wrong._by_address) == module._ADDRESSES


# -- comparisons ----------------------------------------------------------------------------------------------------


def test_secrets_are_compared_in_constant_time_and_looked_up_by_their_hashes_only() -> None:
    """No comparison in the module has a secret on either side: only hashes, lengths, roles and times."""
    compared = [
        ast.unparse(node) for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.Compare)
    ]
    told = [text for text in compared if any(word in text for word in ("token", "secret", "given", "code", "cookie"))]
    assert sorted(told) == [
        "SHORTEST <= len(token) <= LONGEST",
        "self.operator_token == self.viewer_token",  # both are the user's own
        "token is None",
    ]
    assert inspect.getsource(module).count("compare_digest(") == 2


def test_a_visitor_does_not_show_its_csrf_value() -> None:
    assert "s3cr3t" not in repr(Visitor(Role.VIEWER, "s3cr3t"))
