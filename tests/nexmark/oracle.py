"""What the queries must give, by Spark SQL on the log alone: it shares no code with what it checks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

#: Lengths in milliseconds, as in the specification, unless a test says otherwise.
SIZES = {"Q5": (60_000, 1_000), "Q7": (10_000,), "Q8": (43_200_000,), "Q11": (10_000,), "Q12": (10_000,)} | {
    "NBQ5": (60_000, 10_000),
    "NBQ8": (43_200_000,),
    "NBQX": (1_800_000, 3_600_000, 5_400_000, 7_200_000, 14_400_000),
}

_VIEWS = """
    CREATE OR REPLACE TEMP VIEW person AS SELECT p_id AS id, p_name AS name, p_city AS city, p_state AS state, date_time
        FROM log WHERE kind = 0;
    CREATE OR REPLACE TEMP VIEW auction AS SELECT a_id AS id, a_reserve AS reserve, a_expires AS expires,
        a_seller AS seller, a_category AS category, date_time FROM log WHERE kind = 1;
    CREATE OR REPLACE TEMP VIEW bid AS SELECT b_auction AS auction, b_bidder AS bidder, b_price AS price, date_time,
        arrival_time, extra FROM log WHERE kind = 2;
    CREATE OR REPLACE TEMP VIEW sale AS
        SELECT time, auction, seller, category, bidder, price, bid_time FROM (
            SELECT expires AS time, id AS auction, seller, category, bidder, price, b.date_time AS bid_time,
                row_number() OVER (PARTITION BY id ORDER BY price DESC, b.date_time, bidder) AS place
            FROM auction a JOIN bid b ON b.auction = a.id
            WHERE b.date_time >= a.date_time AND b.date_time < a.expires AND b.price >= a.reserve)
        WHERE place = 1;
    CREATE OR REPLACE TEMP VIEW average AS
        SELECT time, category, sum_price DIV num AS avg_price, sum_price, num FROM (
            SELECT time, category, sum(sum(price)) OVER running AS sum_price, sum(count(*)) OVER running AS num
            FROM sale GROUP BY time, category WINDOW running AS (PARTITION BY category ORDER BY time))
"""

_SLIDING = """
    SELECT auction, price, n, last_time, explode(sequence(
        pane - {size} + {slide}, pane, {slide})) AS start
    FROM (SELECT auction, date_time DIV {slide} * {slide} AS pane, max(price) AS price, count(*) AS n,
        max(date_time) AS last_time FROM bid GROUP BY ALL)
"""

_SESSION = """
    SELECT *, sum(fresh) OVER (PARTITION BY key ORDER BY date_time) AS session FROM (
        SELECT *, CASE WHEN date_time - lag(date_time) OVER (PARTITION BY key ORDER BY date_time) < {gap} THEN 0 ELSE 1
            END AS fresh FROM ({rows}))
"""

_BOTH = """
    SELECT id AS key, date_time, CAST(null AS BIGINT) AS bidder, CAST(null AS BIGINT) AS price FROM auction
    UNION ALL SELECT auction AS key, date_time, bidder, price FROM bid
"""

_SQL = {
    "Q0": "SELECT kind, p_id, p_name, p_email, p_card, p_city, p_state, date_time, extra, a_id, a_item, a_desc, "
    "a_initial_bid, a_reserve, a_expires, a_seller, a_category, b_auction, b_bidder, b_price FROM log",
    "Q1": "SELECT auction, bidder, 89 * price DIV 100 AS price, date_time, extra FROM bid",
    "Q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "Q3": "SELECT name, city, state, a.id AS auction FROM auction a JOIN person p ON a.seller = p.id "
    "WHERE category = 10 AND state IN ('OR', 'ID', 'CA')",
    "Q4": "SELECT * FROM average",
    "Q4F": "SELECT time, category, avg_price, sum_price, num FROM (SELECT *, row_number() OVER (PARTITION BY category "
    "ORDER BY time DESC) AS place FROM average) WHERE place = 1",
    "Q5": "SELECT start AS window_start, start + {0} AS window_end, auction, num FROM (SELECT *, max(num) OVER "
    "(PARTITION BY start) AS most FROM (SELECT start, auction, sum(n) AS num FROM ({sliding}) GROUP BY ALL)) "
    "WHERE num = most",
    "Q6": "SELECT time, seller, auction, sum(price) OVER ten DIV count(*) OVER ten AS avg_price, count(*) OVER ten AS "
    "num FROM sale WINDOW ten AS (PARTITION BY seller ORDER BY time, auction ROWS 9 PRECEDING)",
    "Q7": "SELECT start AS window_start, start + {0} AS window_end, auction, bidder, price, date_time FROM (SELECT *, "
    "max(price) OVER (PARTITION BY start) AS most FROM (SELECT *, date_time DIV {0} * {0} AS start FROM bid)) "
    "WHERE price = most",
    "Q8": "SELECT p.date_time DIV {0} * {0} AS window_start, (p.date_time DIV {0} + 1) * {0} AS window_end, p.id AS "
    "person, name, a.id AS auction, reserve FROM person p JOIN auction a ON a.seller = p.id AND "
    "a.date_time DIV {0} = p.date_time DIV {0}",
    "Q9": "SELECT * FROM sale",
    "Q11": "SELECT key AS bidder, count(*) AS num, min(date_time) AS session_start, max(date_time) + {0} AS "
    "session_end FROM ({session}) GROUP BY key, session",
    "Q12": "SELECT bidder, count(*) AS num, arrival_time DIV {0} * {0} AS window_start, (arrival_time DIV {0} + 1) * "
    "{0} AS window_end FROM bid GROUP BY bidder, arrival_time DIV {0}",
    "NBQ5": "SELECT start AS window_start, start + {0} AS window_end, auction, sum(n) AS num, max(price) AS max_price, "
    "max(last_time) AS last_time FROM ({sliding}) GROUP BY start, auction",
    "NBQ8": "SELECT p.date_time DIV {0} * {0} AS window_start, (p.date_time DIV {0} + 1) * {0} AS window_end, p.id AS "
    "person, a.id AS auction, p.date_time AS person_time, a.date_time AS auction_time FROM person p JOIN auction a "
    "ON a.seller = p.id AND a.date_time DIV {0} = p.date_time DIV {0}",
    "AF": "SELECT auction, sum(price) AS sum_price, count(*) AS num FROM bid GROUP BY auction",
}
_SESSION_JOIN = """
    SELECT 'session:{gap}' AS sub, a.opens AS window_start, a.closes AS window_end, a.key AS auction, b.bidder, b.price,
        a.date_time AS auction_time, b.date_time AS bid_time
    FROM bounded_{gap} a JOIN bounded_{gap} b ON a.key = b.key AND a.session = b.session
    WHERE a.price IS NULL AND b.price IS NOT NULL
"""
_TUMBLING_JOIN = """
    SELECT 'tumble:{size}' AS sub, a.date_time DIV {size} * {size} AS window_start,
        (a.date_time DIV {size} + 1) * {size} AS window_end, a.id AS auction, bidder, price,
        a.date_time AS auction_time, b.date_time AS bid_time
    FROM auction a JOIN bid b ON a.id = b.auction AND a.date_time DIV {size} = b.date_time DIV {size}
"""


class Oracle:
    """The results of all queries on one log."""

    def __init__(self, spark: SparkSession, log: Path, sizes: Mapping[str, tuple[int, ...]] | None = None) -> None:
        self._spark = spark
        self._sizes = {**SIZES, **(sizes or {})}
        spark.conf.set("spark.sql.shuffle.partitions", "2")
        spark.read.parquet(str(log)).coalesce(1).cache().createOrReplaceTempView("log")
        for view in _VIEWS.split(";\n"):
            spark.sql(view)

    def result(self, name: str) -> pa.Table:
        """What a query must give."""
        rows: pa.Table = self._spark.sql(self._text(name)).toArrow()
        return rows

    def _text(self, name: str) -> str:
        sizes = self._sizes.get(name.removesuffix("C"), ())
        if name == "NBQX":
            return self._joins(*sizes)
        if name == "NBQXC":
            return (
                "SELECT sub, window_start, window_end, auction, count(*) AS num, sum(price) AS sum_price "
                f"FROM ({self._joins(*sizes)}) GROUP BY sub, window_start, window_end, auction"
            )
        sliding = _SLIDING.format(size=sizes[0], slide=sizes[1]) if len(sizes) == 2 else ""
        session = _SESSION.format(gap=sizes[0], rows="SELECT bidder AS key, date_time FROM bid") if sizes else ""
        return _SQL[name].format(*sizes, sliding=sliding, session=session)

    def _joins(self, *sizes: int) -> str:
        *gaps, size = sizes
        for gap in gaps:
            self._spark.sql(
                f"CREATE OR REPLACE TEMP VIEW bounded_{gap} AS SELECT *, min(date_time) OVER whole AS opens, "
                f"max(date_time) OVER whole + {gap} AS closes FROM ({_SESSION.format(gap=gap, rows=_BOTH)}) "
                "WINDOW whole AS (PARTITION BY key, session)"
            )
        parts = [_TUMBLING_JOIN.format(size=size), *(_SESSION_JOIN.format(gap=gap) for gap in gaps)]
        return " UNION ALL ".join(parts)
