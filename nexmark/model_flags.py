"""The command line flags that describe events, for logs and live runs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from primitives.errors import UserError

if TYPE_CHECKING:
    from nexmark.generator import BidSkew, EventSettings


class SkewPattern(StrEnum):
    """The names of `nexmark.generator.Pattern`, without importing NumPy."""

    FIXED = "fixed"
    SPIKING = "spiking"
    ROTATING = "rotating"


def _option(*names: str, help: str, metavar: str | None = None, **limits: Any) -> Any:
    return typer.Option(*names, help=help, metavar=metavar, **limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFlags:
    """The flags for the model's settings, except rates and sizes."""

    seed: Annotated[int, _option("--seed", metavar="N", min=0, help="Equal seeds give equal events.")] = 1
    dilation: Annotated[int, _option("--dilation", metavar="K", min=1, help="Event time goes K times as fast.")] = 1
    in_flight: Annotated[int, _option("--in-flight", metavar="N", min=0, help="Auctions open at the same time.")] = 100
    out_of_order: Annotated[
        int, _option("--out-of-order", metavar="N", min=1, help="Events come out of order in groups of N.")
    ] = 1
    skew: Annotated[
        float, _option("--skew", metavar="PART", min=0, max=1, help="Share of the bids that goes to chosen auctions.")
    ] = 0.0
    skew_to: Annotated[
        str,
        _option(
            "--skew-to", metavar="N/M|IDS", help="The chosen auctions: of N of M instances, or these ids: 1000,1100."
        ),
    ] = "1/4"
    skew_pattern: Annotated[
        SkewPattern, _option("--skew-pattern", help="When bids are skewed: always, at times, or to moving targets.")
    ] = SkewPattern.FIXED
    skew_period: Annotated[
        float, _option("--skew-period", metavar="SECONDS", min=0.001, help="Period of the pattern, in event time.")
    ] = 10.0

    def settings(self, **others: Any) -> EventSettings:
        """Returns the model's settings; `others` are further fields of these."""
        from nexmark.generator import EventSettings

        return EventSettings(
            seed=self.seed,
            dilation=self.dilation,
            in_flight=self.in_flight,
            group=self.out_of_order,
            skew=self._skew() if self.skew else None,
            **others,
        )

    def _skew(self) -> BidSkew:
        from nexmark.generator import BidSkew, Pattern

        pattern = Pattern(self.skew_pattern.value)
        return BidSkew(share=self.skew, pattern=pattern, period=self.skew_period, **_targets(self.skew_to))


def _targets(text: str) -> dict[str, Any]:
    """Parses the targets of skewed bids.

    >>> _targets("1/4"), _targets("1000,1100")
    ({'hot': 1, 'instances': 4}, {'keys': (1000, 1100)})
    """
    parts = text.split("/") if "/" in text else text.split(",")
    if not all(part.strip().isdecimal() for part in parts) or ("/" in text and len(parts) != 2):
        raise UserError(f"--skew-to {text!r}: write N/M for N of M instances, or ids such as 1000,1100")
    numbers = tuple(map(int, parts))
    return {"hot": numbers[0], "instances": numbers[1]} if "/" in text else {"keys": numbers}
