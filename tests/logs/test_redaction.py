"""Secrets are replaced wherever they may stand in a log line, in any form."""

from __future__ import annotations

import json
import logging
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seep.channels.security import Security
from seep.logs.line import LogLine
from seep.logs.redaction import HIDDEN, Redactor, environment_secrets
from seep.logs.run_log import LogContext, RunLog

SECRET = "wJalrXUtnFEMI/K7MDENG+bPx&Rf=iCYEXAMPLEKEY"


@pytest.mark.parametrize("form", [str, repr, json.dumps, quote, lambda text: quote(text, safe="")])
def test_a_known_secret_is_found_in_every_form(form: object) -> None:
    said = f"cannot read {form(SECRET)}: denied"  # type: ignore[operator]
    assert Redactor([SECRET])(said).replace('"', "").replace("'", "") == f"cannot read {HIDDEN}: denied"


@given(st.text(min_size=6), st.text(), st.text())
def test_no_known_secret_is_left_in_any_text(secret: str, before: str, after: str) -> None:
    if secret in HIDDEN or HIDDEN in secret:
        return
    assert secret not in Redactor([secret])(f"{before}\0{secret}\0{after}").replace(HIDDEN, "\0")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("at postgresql://me:hunter2@db:5432/x", f"at postgresql://me:{HIDDEN}@db:5432/x"),
        ("redis://:hunter2@db", f"redis://:{HIDDEN}@db"),
        ("header Authorization: Bearer abc.def-123", f"header Authorization: Bearer {HIDDEN}"),
        ("key AKIAIOSFODNN7EXAMPLE is not known", f"key {HIDDEN} is not known"),
        ("GET /x?X-Amz-Signature=0123456789&n=1", f"GET /x?X-Amz-Signature={HIDDEN}&n=1"),
        ("AWS_SECRET_ACCESS_KEY=0123456789 python", f"AWS_SECRET_ACCESS_KEY={HIDDEN} python"),
        ("-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----", HIDDEN),
        (
            "dashboard at http://localhost:8042/login?code=abc-DEF_123",
            f"dashboard at http://localhost:8042/login?code={HIDDEN}",
        ),
        ("cookie: a=b; seep-8042=abc-DEF_123; c=d", f"cookie: a=b; seep-8042={HIDDEN}; c=d"),
        ("link to n3 broken", "link to n3 broken"),
        ("s3://bucket/a@b and http://127.0.0.1:8080/x", "s3://bucket/a@b and http://127.0.0.1:8080/x"),
        ("plan 3 at epoch 9: 512 slots", "plan 3 at epoch 9: 512 slots"),
    ],
)
def test_what_has_the_form_of_a_secret_is_replaced_and_nothing_else(text: str, told: str) -> None:
    assert Redactor()(text) == told


@pytest.mark.parametrize("part", ["x", "secret", "://", "://a:", "Bearer ", "-----BEGIN PRIVATE KEY-----", "token-"])
def test_a_long_text_of_whatever_kind_is_soon_done(part: str) -> None:
    assert len(Redactor([SECRET])(part * 50_000)) <= len(part) * 50_000


def test_the_secrets_of_an_environment_are_those_of_clouds_and_those_named_so() -> None:
    secret = {
        "AWS_ACCESS_KEY_ID": "AKIA00000001",
        "AWS_SECRET_ACCESS_KEY": "secret-1",
        "AWS_SESSION_TOKEN": "secret-2",
        "GOOGLE_API_KEY": "secret-3",
        "DB_PASSWORD": "secret-4",
        "PYSPARK_GATEWAY_SECRET": "secret-5",
    }
    usual = {"AWS_REGION": "eu-central-1", "AWS_PROFILE": "default", "HOME": "/root", "GOOGLE_CLOUD_PROJECT": "streams"}
    assert environment_secrets(secret | usual) == list(secret.values())


def test_the_private_key_of_a_run_is_replaced_line_by_line() -> None:
    security = Security.with_tls("127.0.0.1")
    assert security.key is not None
    redact = Redactor.of(security.token, security.key, environment={})
    for line in [security.token, *security.key.decode().splitlines()[1:-1]]:
        if len(line) >= 32:
            assert line not in redact(f"it has {line} in it")
    assert "BEGIN" not in redact(f"key {security.key!r}")


def test_message_arguments_fields_and_exceptions_of_a_log_have_no_secret() -> None:
    kept: list[LogLine] = []
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logger = logging.getLogger("seep.tests.secrets")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    log = RunLog(logger.name, LogContext(kept.append, redact=Redactor([SECRET])))
    try:
        try:
            raise ValueError(SECRET)
        except ValueError as reason:
            raise KeyError(SECRET) from reason
    except KeyError:
        log.exception("%s and %r", SECRET, {"key": SECRET}, extra={"instance": SECRET})
    logger.removeHandler(handler)
    everything = f"{kept} {vars(records[0])} {logging.Formatter().format(records[0])}"
    assert SECRET not in everything
    assert "KeyError" in everything


def test_plain_data_is_redacted_in_depth() -> None:
    failure = {"kind": "user", "text": f"no {SECRET}", "rows": [{"key": SECRET, "n": 1}], "pair": (SECRET, None)}
    assert Redactor([SECRET]).value(failure) == {
        "kind": "user",
        "text": f"no {HIDDEN}",
        "rows": [{"key": HIDDEN, "n": 1}],
        "pair": (HIDDEN, None),
    }
