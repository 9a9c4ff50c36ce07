"""Distributes work between pairs of instances over steps in which no instance has two partners.

By König's theorem a bipartite multigraph of degree Δ is the union of Δ matchings. They are found by Birkhoff's method:
padding makes all degrees Δ; such a graph has a perfect matching, which is taken as many times as it occurs; the rest is
regular again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

#: Giver and receiver.
Pair = tuple[int, int]
#: Number of steps, and the pairs without common instances that these steps serve.
Matching = tuple[int, frozenset[Pair]]

Table = NDArray[np.int64]


def matchings(work: Mapping[Pair, int]) -> list[Matching]:
    """Returns matchings in which every pair has as many turns as it has work.

    If no instance both gives and receives, they have Δ steps in all: the most that an instance gives or receives, which
    is the minimum. Otherwise at most 3 Δ.

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
    """Returns Birkhoff's decomposition: numbers of times, and the cells of the table, without padding."""
    real, filling = table.copy(), _filling(table)
    while real.any():
        there = np.where(real > 0, real, filling)
        rows, columns = np.arange(len(there)), _perfect_matching(there)
        times, is_real = int(there[rows, columns].min()), real[rows, columns] > 0
        real[rows[is_real], columns[is_real]] -= times
        filling[rows[~is_real], columns[~is_real]] -= times
        yield times, list(zip(rows[is_real].tolist(), columns[is_real].tolist(), strict=True))


def _filling(table: Table) -> Table:
    """Returns padding that gives all rows and columns of a table the same sum, by the north-west corner rule."""
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
    """Returns the column of each row, of nonzero cells; of large ones if possible, so that few matchings are needed.

    A table with rows and columns of one sum has such a matching (Hall).
    """
    least = min(there.max(axis=0).min(), there.max(axis=1).min())
    while len(partner := _matching(there >= least)) < 2 * len(there):
        least //= 2
    return np.array([partner[row] - len(there) for row in range(len(there))])


def _matching(cells: NDArray[np.bool_]) -> Mapping[int, int]:
    """Returns partners of rows and of columns, which are numbered after the rows; as many as possible."""
    import networkx as nx  # takes 0.3 s, so only migrations that need it import it

    graph: nx.Graph[int] = nx.Graph()
    rows, columns = np.nonzero(cells)
    graph.add_edges_from(zip(rows.tolist(), (columns + len(cells)).tolist(), strict=True))
    partner: Mapping[int, int] = nx.bipartite.hopcroft_karp_matching(graph, range(len(cells)))
    return partner


def _apart(pairs: list[Pair]) -> list[frozenset[Pair]]:
    """Divides the pairs into groups in which no instance occurs twice.

    As no instance gives or receives twice, three groups are enough.
    """
    import networkx as nx

    partners: nx.MultiGraph[int] = nx.MultiGraph()
    partners.add_edges_from((*pair, pair) for pair in pairs)  # the key tells its direction
    groups = nx.greedy_color(nx.line_graph(partners), "connected_sequential")
    return [
        frozenset(pair for (*_, pair), group in groups.items() if group == chosen)
        for chosen in sorted(set(groups.values()))
    ]
