"""The benchmark of NEXMark measures what it has targets for."""

from __future__ import annotations

from benchmarks import nexmark
from benchmarks.nexmark_chain import Chain
from nexmark.generator import EventSettings
from nexmark.queries import QUERIES


def test_generator_and_chains_are_measured() -> None:
    assert all(rate > 0 for rate in nexmark.generator(10_000).values())
    for name in ("Q2", "Q4"):
        (spent,) = nexmark.chain(name, 20_000).values()
        assert spent > 0


def test_a_chain_runs_every_operator_and_puts_out_rows() -> None:
    chain = Chain("Q4", EventSettings(text=False, filler=False))
    spent = chain.measure(20_000, 20_000, 5_000)
    assert spent.keys() == {"events", "auctions", "bids", "winning-bids", "average", "out"}
    assert chain.rows_out > 0
    assert chain.events == 20_000


def test_targets_are_of_queries_that_there_are() -> None:
    assert nexmark.WANTED.keys() <= QUERIES.keys()
