"""Settings of metrics."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from formats.settings import Seconds, Section, checked


class OtlpSettings(Section):
    """Settings of OTLP: the collector that metrics and traces are pushed to."""

    url: str | None = Field(
        None,
        pattern=r"^https?://[^/?#@\s]+(/[^?#@\s]*)?$",
        description="Base URL of an OpenTelemetry collector that takes OTLP over HTTP, such as http://127.0.0.1:4318; "
        "none: nothing is pushed.",
    )
    headers_file: Path | None = Field(
        None, description="File with headers of each push, one `Name: value` per line, such as a token; kept secret."
    )
    interval: Seconds = Field(10.0, ge=0.1, description="Time between two pushes.")
    timeout: Seconds = Field(
        5.0, le=60.0, description="The longest that a push may take; also how long the last one holds up the end."
    )


class MetricsSettings(Section):
    """Settings of metrics: where the driver serves them for Prometheus, and pushes them to."""

    port: int | None = Field(
        None, ge=0, le=65535, description="Port of `/metrics` on the driver; 0: any free one; none: no metrics."
    )
    host: str = Field(
        "127.0.0.1", min_length=1, description="Address to listen on; by default, only the driver's machine can scrape."
    )
    otlp: OtlpSettings = Field(OtlpSettings(), description="The collector that metrics and traces are pushed to.")


def metrics_settings(given: MetricsSettings | Mapping[str, Any] | int | None) -> MetricsSettings:
    """Returns the settings that stand for a port, or that are given by name.

    >>> metrics_settings(9400).port, metrics_settings(True).port, metrics_settings(False).port
    (9400, 0, None)
    >>> metrics_settings({"otlp": {"url": "http://127.0.0.1:4318", "interval": "1s"}}).otlp.interval
    1.0
    """
    if isinstance(given, MetricsSettings):
        return given
    port = (0 if given else None) if isinstance(given, bool) else given
    return checked(MetricsSettings, given if isinstance(given, Mapping) else {"port": port}, "option 'metrics'")
