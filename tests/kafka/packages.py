"""The Maven packages of the broker and of Spark's connector; `python -m tests.kafka.packages` fetches them."""

from __future__ import annotations

import fcntl
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pyspark

from seep.spark.java import check_java


class Package(NamedTuple):
    """Maven coordinates."""

    organisation: str
    name: str
    version: str
    alone: bool = False  #: without what it needs

    def __str__(self) -> str:
        return f"{self.organisation}:{self.name}:{self.version}"

    @property
    def xml(self) -> str:
        what = f'org="{self.organisation}" name="{self.name}" rev="{self.version}"'
        return f'<dependency {what} conf="default->default" transitive="{str(not self.alone).lower()}"/>'


#: The release of Kafka that runs here; Spark's connector speaks to any that is newer than itself, and to older ones.
KAFKA = (Package("org.apache.kafka", "kafka_2.13", "4.1.1"),)
#: A part of it, so small that a registry that answers gives it at once.
PROBE = (Package("org.apache.kafka", "kafka-storage-api", "4.1.1", alone=True),)
JARS = Path(pyspark.__file__).parent / "jars"
#: Two, as both are filled at once.
FOR_BROKER, FOR_SPARK = (Path.home() / ".cache" / "seep" / "ivy" / part for part in ("broker", "connector"))
#: Seconds for the registry to answer at all, and then for all packages to come, if they are not in the cache.
ANSWER, PATIENCE = 15.0, 100.0
#: The connector: that of this Spark, or one that works with it where a registry lacks it, or a part of it.
CONNECTORS = (
    (Package("org.apache.spark", "spark-sql-kafka-0-10_2.13", pyspark.__version__),),
    (
        Package("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0", alone=True),
        Package("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.1.0-preview1"),
        Package("org.apache.commons", "commons-pool2", "2.12.1", alone=True),
    ),
)


class NotThere(Exception):
    """The registry of packages did not give what was asked for in time."""


def resolved(packages: Sequence[Package], cache: Path, timeout: float) -> str:
    """The class path of packages and all that they need, as Spark's own Ivy finds and keeps them in a cache.

    NotThere after `timeout` seconds; what has come by then is kept, and need not come the next time.
    """
    classpath = place_of(packages, cache)
    if not classpath.exists():
        _resolve(packages, cache, classpath, timeout)
    return classpath.read_text(encoding="utf-8").strip()


def place_of(packages: Sequence[Package], cache: Path) -> Path:
    """Where the class path is noted when all has come."""
    return cache / f"{'+'.join(f'{package.name}-{package.version}' for package in packages)}.classpath"


def _resolve(packages: Sequence[Package], cache: Path, classpath: Path, timeout: float) -> None:
    check_java()
    cache.mkdir(parents=True, exist_ok=True)
    wanted, unfinished = classpath.with_suffix(".xml"), classpath.with_suffix(".unfinished")
    needs = "".join(package.xml for package in packages)
    module = f'<info organisation="seep" module="{classpath.stem}"/><dependencies>{needs}</dependencies>'
    wanted.write_text(f'<ivy-module version="2.0">{module}</ivy-module>', encoding="utf-8")
    ivy = ("java", "-cp", f"{JARS}/*", "org.apache.ivy.Main", "-cache", str(cache), "-ivy", str(wanted), "-warn")
    what = ("-confs", "default", "-types", "jar", "bundle", "-cachepath", str(unfinished))
    names = ", ".join(map(str, packages))
    try:
        done = subprocess.run([*ivy, *what], capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        raise NotThere(f"{names} did not come within {timeout:g} s") from None
    if done.returncode or not unfinished.exists() or "UNRESOLVED" in done.stdout + done.stderr:
        raise NotThere(f"{names}: {(done.stdout + done.stderr)[-500:]}")
    unfinished.rename(classpath)


def packages() -> tuple[str, str]:
    """The class paths of the broker and of the connector; whoever comes while they are fetched waits for that."""
    FOR_BROKER.mkdir(parents=True, exist_ok=True)
    with open(FOR_BROKER / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _packages()


def _packages() -> tuple[str, str]:
    if not place_of(KAFKA, FOR_BROKER).exists():
        resolved(PROBE, FOR_BROKER, ANSWER)
    with ThreadPoolExecutor() as both:
        broker, connector = both.submit(resolved, KAFKA, FOR_BROKER, PATIENCE), both.submit(found_connector)
        return broker.result(), connector.result()


def found_connector() -> str:
    """The class path of the first that can be had."""
    cached = [wanted for wanted in CONNECTORS if place_of(wanted, FOR_SPARK).exists()]
    why, deadline = NotThere("no connector is known"), time.monotonic() + PATIENCE
    for wanted in cached or CONNECTORS:
        try:
            return resolved(wanted, FOR_SPARK, max(deadline - time.monotonic(), 1.0))
        except NotThere as reason:
            why = reason
    raise why


if __name__ == "__main__":
    packages()
