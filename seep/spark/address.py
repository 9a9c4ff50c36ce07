"""Addresses: nodes and driver listen on the same interfaces as Spark, and on no others."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING

from primitives.errors import EnvironmentFault

if TYPE_CHECKING:
    from pyspark import SparkContext

#: Any port works: it only looks up a route, and sends nothing.
_DISCARD = 9


def driver_host(context: SparkContext) -> str:
    """Returns the name or address at which Spark's executors reach the driver."""
    return context.getConf().get("spark.driver.host") or "127.0.0.1"


def driver_interface(context: SparkContext) -> str:
    """Returns the address that the driver may listen on; it differs from `driver_host` on Kubernetes, for example."""
    return context.getConf().get("spark.driver.bindAddress") or driver_host(context)


def node_host(driver: str, environment: Mapping[str, str] = os.environ) -> str:
    """Returns the address that a node on this host listens on: SPARK_LOCAL_IP, or the start of the route to the driver.

    >>> node_host("127.0.0.1", {})
    '127.0.0.1'
    >>> node_host("127.0.0.1", {"SPARK_LOCAL_IP": "127.0.0.2"})
    '127.0.0.2'
    """
    own = environment.get("SPARK_LOCAL_IP")
    return _resolved(own) if own else _route_to(driver)


def is_loopback(host: str) -> bool:
    """Whether the name or address stays within this machine.

    >>> is_loopback("127.0.0.3"), is_loopback("192.0.2.7"), is_loopback("no.such.host.invalid")
    (True, False, False)
    """
    try:
        return ipaddress.ip_address(_resolved(host)).is_loopback
    except EnvironmentFault:
        return False


def _resolved(host: str) -> str:
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as reason:
        raise EnvironmentFault(f"host {host!r} has no address here ({reason}); name it in DNS or /etc/hosts") from None


def _route_to(driver: str) -> str:
    address = _resolved(driver)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, _DISCARD))
        except OSError as reason:
            raise EnvironmentFault(
                f"there is no route from {socket.gethostname()} to the driver at {driver} ({reason}); "
                "set spark.driver.host to an address that the executors can reach"
            ) from None
        return str(probe.getsockname()[0])
