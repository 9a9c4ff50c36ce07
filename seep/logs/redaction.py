"""Redaction: secrets never stand in a log line, neither the run's own nor those of the environment."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote

#: What stands in place of a secret.
HIDDEN = "[redacted]"
#: Shorter values are not looked for: they are no secrets, and stand in many words.
_SHORTEST = 6
#: Variables with secret values: those of clouds, except the harmless ones, and those named so.
_CLOUD = re.compile(r"(AWS|GOOGLE)_")
_HARMLESS = re.compile(
    r"AWS_(DEFAULT_)?(REGION|OUTPUT|PROFILE|CA_BUNDLE|CONFIG_FILE|RETRY_MODE|MAX_ATTEMPTS|ENDPOINT_URL\w*)"
    r"|AWS_(PAGER|SDK_\w+|EC2_METADATA_\w+|\w+_TIMEOUT)|GOOGLE_CLOUD_(PROJECT|REGION|LOCATION)"
)
#: Headers of pushes to a collector: name=value, separated by commas, with escapes as in a URL.
_HEADERS = re.compile(r"OTEL_EXPORTER_OTLP_(\w+_)?HEADERS")
_NAMED = re.compile(r"SECRET|TOKEN|PASSWORD|PASSWD|CREDENTIAL|(ACCESS|PRIVATE|API)_?KEY", re.IGNORECASE)

#: Secrets that are found by their form. Repetitions that may begin anywhere are bounded: the time is linear.
_FORMS = (
    (re.compile(r"(://[^\s/:@]{0,256}:)[^\s/@]{1,256}(?=@)"), r"\1" + HIDDEN),
    (re.compile(r"(Bearer\s{1,8})[\w.~+/=-]{8,}"), r"\1" + HIDDEN),
    (re.compile(r"((?:/login\?code|\bseep-\d{1,5})=)[\w-]{8,}"), r"\1" + HIDDEN),  # links and cookies of the dashboard
    (
        re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)", re.DOTALL),
        HIDDEN,
    ),
    (re.compile(r"\b(AKIA|ASIA)[0-9A-Z]{16}\b"), HIDDEN),
    (
        re.compile(
            r"((?:secret|token|password|access_key|signature|credential)[\w-]{0,40}=)[^\s&;,]{6,}", re.IGNORECASE
        ),
        r"\1" + HIDDEN,
    ),
)


class Redactor:
    """Replaces known secrets in texts, and what has the form of one.

    >>> redact = Redactor(["s3cr3t-t0ken"])
    >>> redact("it said s3cr3t-t0ken to https://me:hunter22@example.org/x")
    'it said [redacted] to https://me:[redacted]@example.org/x'
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        found = {form for secret in secrets for form in _forms_of(secret) if len(form) >= _SHORTEST}
        ordered = sorted(found, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    @classmethod
    def of(cls, *secrets: str | bytes | None, environment: Mapping[str, str] | None = None) -> Redactor:
        """Returns one for these secrets, and those of the environment (of this process, if none is given)."""
        own = (each.decode() if isinstance(each, bytes) else each for each in secrets if each)
        return cls([*own, *environment_secrets(os.environ if environment is None else environment)])

    def __call__(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(HIDDEN, text)
        for form, replacement in _FORMS:
            text = form.sub(replacement, text)
        return text

    def value(self, value: Any) -> Any:
        """Returns plain data (texts, lists, mappings, numbers) with all its texts redacted."""
        match value:
            case str():
                return self(value)
            case Mapping():
                return {name: self.value(each) for name, each in value.items()}
            case list():
                return [self.value(each) for each in value]
            case tuple():
                return tuple(self.value(each) for each in value)
        return value


def environment_secrets(environment: Mapping[str, str]) -> list[str]:
    """Returns the values of variables that hold secrets.

    >>> environment_secrets({"AWS_SESSION_TOKEN": "abcdefgh", "AWS_REGION": "eu-west-1", "HOME": "/home/me"})
    ['abcdefgh']
    """
    whole = [value for name, value in environment.items() if _is_secret(name)]
    headers = [value for name, value in environment.items() if _HEADERS.fullmatch(name)]
    values = [unquote(each.partition("=")[2]) for value in headers for each in value.split(",")]
    return [*whole, *header_secrets(values)]


def header_secrets(values: Iterable[str]) -> list[str]:
    """Returns what is secret of the values of headers: each, and what follows a scheme.

    >>> header_secrets(["Bearer 0123456789", "my-key"])
    ['Bearer 0123456789', '0123456789', 'my-key']
    """
    found = (form for value in values for form in (value.strip(), value.strip().rpartition(" ")[2]))
    return [form for form in dict.fromkeys(found) if form]


def _is_secret(name: str) -> bool:
    return bool(_NAMED.search(name) or (_CLOUD.match(name) and not _HARMLESS.fullmatch(name)))


def _forms_of(secret: str) -> Iterator[str]:
    """Yields a secret as it may stand in a text: as it is, escaped, in a URL; and each line of a key."""
    yield from (
        secret,
        secret.strip(),
        repr(secret)[1:-1],
        json.dumps(secret)[1:-1],
        quote(secret),
        quote(secret, safe=""),
    )
    if "\n" in secret:
        yield from (line for line in secret.splitlines() if len(line) >= 32 and "-----" not in line)
