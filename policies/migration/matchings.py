"""Distributes work between pairs of instances over steps in which no instance has two partners.

By König's theorem a bipartite multigraph of degree Δ is the union of Δ matchings. They are found as Birkhoff did: once
it is filled up so that all degrees are Δ, it has a perfect matching, which is taken as many times as it is there; what
is left is regular again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

#: Who gives, and who receives.
Pair = tuple[int, int]
#: Pairs that share no instance, and in how many steps they have a turn.
Matching = tuple[int, frozenset[Pair]]

Table = NDArray[np.int64]


def matchings(work: Mapping[Pair, int]) -> list[Matching]:
    """Matchings in which every pair has as many turns as it has work.

    Where no instance both gives and receives, they come to Δ steps, the most that one of them gives or receives; fewer
    cannot be. Otherwise to 3 Δ at most.

    >>> for times, pairs in matchings({(0, 2): 3, (0, 3): 1, (1, 3): 2}):
    ...     print(times, sorted(pairs))
    2 [(0, 2), (1, 3)]
    1 [(0, 2)]
    1 [(0, 3)]
    """
    givers, receivers = sorted({giver for giver, _ in work}), sorted({receiver for _, receiver in work})
    table = np.zeros((max(len(givers), len(receivers)),) * 2, np.int64)
    for (giver, receiver), amount in work.items():
        table[givers.index(giver), receivers.index(receiver)] = amount
    return [
        (times, apart)
        for times, cells in _perfect_matchings(table)
        for apart in _apart([(givers[row], receivers[column]) for row, column in cells])
    ]


def _perfect_matchings(table: Table) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """Birkhoff's decomposition: how many times, and the cells of the table, without those that only fill it up."""
    real, filling = table.copy(), _filling(table)
    while real.any():
        there = np.where(real > 0, real, filling)
        rows, columns = np.arange(len(there)), _perfect_matching(there)
        times, is_real = int(there[rows, columns].min()), real[rows, columns] > 0
        real[rows[is_real], columns[is_real]] -= times
        filling[rows[~is_real], columns[~is_real]] -= times
        yield times, list(zip(rows[is_real].tolist(), columns[is_real].tolist(), strict=True))


def _filling(table: Table) -> Table:
    """The padding that gives all rows and columns of a table the same sum, by the north-west corner rule."""
    rows, columns = table.sum(axis=1), table.sum(axis=0)
    most, filling = max(rows.max(initial=0), columns.max(initial=0)), np.zeros_like(table)
    row = column = 0
    while row < len(rows) and column < len(columns):
        amount = min(most - rows[row], most - columns[column])
        filling[row, column] += amount
        rows[row] += amount
        columns[column] += amount
        row, column = row + (rows[row] == most), column + (columns[column] == most)
    return filling


def _perfect_matching(there: Table) -> NDArray[np.int64]:
    """The column of each row, of cells that are not zero; of large ones where it can be, so that few matchings do.

    A table with rows and columns of one sum has such a matching (Hall).
    """
    least = min(there.max(axis=0).min(), there.max(axis=1).min())
    while len(partner := _matching(there >= least)) < 2 * len(there):
        least //= 2
    return np.array([partner[row] - len(there) for row in range(len(there))])


def _matching(cells: NDArray[np.bool_]) -> Mapping[int, int]:
    """Partners of rows and of columns, which count on from the rows; as many as can be."""
    import networkx as nx  # takes 0.3 s, which only migrations that are shared out over steps need to pay

    graph: nx.Graph[int] = nx.Graph()
    rows, columns = np.nonzero(cells)
    graph.add_edges_from(zip(rows.tolist(), (columns + len(cells)).tolist(), strict=True))
    partner: Mapping[int, int] = nx.bipartite.hopcroft_karp_matching(graph, range(len(cells)))
    return partner


def _apart(pairs: list[Pair]) -> list[frozenset[Pair]]:
    """The pairs in groups in which nobody is twice. As nobody gives twice or receives twice, three groups will do."""
    import networkx as nx

    partners: nx.MultiGraph[int] = nx.MultiGraph()
    partners.add_edges_from((*pair, pair) for pair in pairs)  # the pair is the key too: an edge forgets its direction
    groups = nx.greedy_color(nx.line_graph(partners), "connected_sequential")
    return [
        frozenset(pair for (*_, pair), group in groups.items() if group == chosen)
        for chosen in sorted(set(groups.values()))
    ]
