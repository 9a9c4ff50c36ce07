"""Settings of metrics."""

from __future__ import annotations

from pydantic import Field

from formats.settings import Section, checked


class MetricsSettings(Section):
    """Settings of metrics: where the driver serves them for Prometheus."""

    port: int | None = Field(
        None, ge=0, le=65535, description="Port of `/metrics` on the driver; 0: any free one; none: no metrics."
    )
    host: str = Field(
        "127.0.0.1", min_length=1, description="Address to listen on; by default, only the driver's machine can scrape."
    )


def metrics_settings(given: MetricsSettings | int | None) -> MetricsSettings:
    """Returns the settings that stand for a port.

    >>> metrics_settings(9400).port, metrics_settings(True).port, metrics_settings(False).port
    (9400, 0, None)
    """
    if isinstance(given, MetricsSettings):
        return given
    port = (0 if given else None) if isinstance(given, bool) else given
    return checked(MetricsSettings, {"port": port}, "option 'metrics'")
