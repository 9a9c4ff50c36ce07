"""The same command again, whatever has become of the driver: each row counts exactly once. Real processes, kill -9."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import seep
from tests.spark.killed_driver import KEYS

ROOT = Path(__file__).parents[2]
ROWS = 300
#: Spark reads files by their age: they are a second apart.
EARLIER = 1_700_000_000
ENDS = ("available", "finish", "stop")


class Restarted:
    """One command, and one directory with all that its runs have."""

    def __init__(self, home: Path) -> None:
        self.home, self.files = home, 0
        (home / "in").mkdir()

    @property
    def rows(self) -> int:
        return self.files * ROWS

    def add_file(self) -> None:
        numbers = range(self.rows, self.rows + ROWS)
        path = self.home / "in" / f"{self.files:04}.parquet"
        fresh = path.with_name(f".{path.name}")
        pq.write_table(pa.table({"n": pa.array(numbers, pa.int64())}), fresh)
        os.utime(fresh, (EARLIER + self.files, EARLIER + self.files))
        fresh.rename(path)
        self.files += 1

    def started(self, end: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.spark.killed_driver", str(self.home), end, str(self.rows)]
        return subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )

    def killed(self, end: str, after: float) -> bool:
        """Whether the driver was still there after so many seconds; then it is not any more."""
        driver = self.started(end)
        try:
            said, _ = driver.communicate(timeout=after)
        except subprocess.TimeoutExpired:
            os.kill(driver.pid, signal.SIGKILL)
            driver.communicate()
            return True
        assert driver.returncode == 0, said
        return False

    def run(self, end: str) -> float:
        """To the end; the seconds that it took."""
        begun = time.monotonic()
        assert not self.killed(end, 200.0), "it takes longer than it should"
        return time.monotonic() - begun

    def check(self) -> None:
        """What has come out is what must have, row for row."""
        numbers = seep.sinks.read(self.home / "files")["n"].to_pylist()
        assert sorted(numbers) == list(range(self.rows))
        counts = Counter(n % KEYS for n in range(self.rows))
        expected = sorted((key, count) for key in counts for count in range(1, counts[key] + 1))
        # as Spark lists them: it says itself which of the files in the directory count
        assert sorted(self.written()) == expected

    def written(self) -> list[tuple[int, int]]:
        reading = (
            "import sys; from pyspark.sql import SparkSession\n"
            "spark = SparkSession.builder.master('local[2]').getOrCreate()\n"
            "rows = spark.read.parquet(sys.argv[1]).collect()\n"
            "print(*(f'{row.key}:{row[1]}' for row in rows))"
        )
        told = subprocess.run(
            [sys.executable, "-c", reading, str(self.home / "result")], capture_output=True, text=True, check=True
        )
        pairs = [pair.split(":") for pair in told.stdout.split()]
        return [(int(key), int(count)) for key, count in pairs]


def story(home: Path, kills: int, seed: int) -> Restarted:
    """A run that comes to its end, and after it one that is killed at some moment, and the next, and the next."""
    restarted, rng = Restarted(home), random.Random(seed)
    restarted.add_file()
    longest = restarted.run("available")
    killed = 0
    while killed < kills:
        restarted.add_file()
        killed += restarted.killed(rng.choice(ENDS), rng.uniform(0.0, 1.1 * longest))
    restarted.add_file()
    restarted.run("finish")
    return restarted


@pytest.mark.timeout(480)
def test_a_driver_that_is_killed_goes_on_by_the_same_command_each_row_once(tmp_path: Path) -> None:
    story(tmp_path, kills=4, seed=3).check()


def test_a_driver_that_is_killed_before_its_first_checkpoint_goes_on(tmp_path: Path) -> None:
    """As soon as Spark was told that a batch is done."""
    restarted = Restarted(tmp_path)
    restarted.add_file()
    driver = restarted.started("finish")
    commits = tmp_path / "checkpoint-in" / "commits"
    while driver.poll() is None and not (commits.is_dir() and any(commits.iterdir())):
        time.sleep(0.01)
    os.kill(driver.pid, signal.SIGKILL)
    driver.communicate()
    restarted.run("finish")
    restarted.check()


def test_a_run_that_came_to_its_end_puts_nothing_out_when_it_is_started_again(tmp_path: Path) -> None:
    restarted = Restarted(tmp_path)
    restarted.add_file()
    for _ in range(2):
        restarted.run("available")
        restarted.check()


@pytest.mark.acceptance
@pytest.mark.timeout(3000)
def test_drivers_that_are_killed_at_forty_moments_go_on_by_the_same_command_each_row_once(tmp_path: Path) -> None:
    story(tmp_path, kills=40, seed=11).check()
