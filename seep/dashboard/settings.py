"""Settings of the dashboard."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import ByteSize, Field

from formats.settings import Section, checked


class DashboardSettings(Section):
    """Settings of the dashboard: where the driver serves the live page and the REST API, and who may use them."""

    port: int | None = Field(
        None, ge=0, le=65535, description="Port of the dashboard on the driver; 0: any free one; none: no dashboard."
    )
    host: str = Field(
        "127.0.0.1",
        min_length=1,
        description="Address to listen on; by default, only browsers on the driver's machine reach it.",
    )
    hosts: tuple[Annotated[str, Field(min_length=1, max_length=253)], ...] = Field(
        (), max_length=32, description="Further names by which browsers may address it, such as that of a proxy."
    )
    token_file: Path | None = Field(
        None,
        description="File with the token of operators, who may also act; else the environment's SEEP_TOKEN, or one "
        "made for the run.",
    )
    viewer_token_file: Path | None = Field(
        None,
        description="File with the token of viewers, who may only read; else the environment's SEEP_VIEWER_TOKEN, or "
        "one made for the run.",
    )
    state_limit: ByteSize = Field(
        ByteSize(128 << 20),
        gt=0,
        description="Bytes of an operator's state up to which people may look at it while the query runs.",
    )
    sql_seconds: float = Field(10.0, gt=0, le=600, description="Seconds after which an SQL query over state is ended.")
    sql_memory: ByteSize = Field(
        ByteSize(256 << 20), ge=32 << 20, description="Bytes of memory that an SQL query over state may use."
    )


def dashboard_settings(given: DashboardSettings | int | None) -> DashboardSettings:
    """Returns the settings that stand for a port.

    >>> dashboard_settings(8080).port, dashboard_settings(True).port, dashboard_settings(False).port
    (8080, 0, None)
    """
    if isinstance(given, DashboardSettings):
        return given
    port = (0 if given else None) if isinstance(given, bool) else given
    return checked(DashboardSettings, {"port": port}, "option 'dashboard'")
