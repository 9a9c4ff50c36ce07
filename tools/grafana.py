"""The dashboard for Grafana, made of the list of panels below; `python -m tools.metrics` writes it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

#: What every selector has: the scraped driver, which the reader of the dashboard chooses.
CHOSEN = 'job="$job", instance="$instance"'
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH = 24


class Panel(NamedTuple):
    """One panel: its title, and expressions with their legends. `@` stands for the chosen driver."""

    title: str
    targets: tuple[tuple[str, str], ...]
    unit: str = "short"
    width: int = 8
    kind: str = "timeseries"
    description: str = ""


def _rates(metric: str, by: str = "operator") -> str:
    return f"sum by ({by}) (rate({metric}{{@}}[$__rate_interval]))"


def _quantile(share: float, metric: str) -> str:
    return f"histogram_quantile({share}, sum by (le) (rate({metric}_bucket{{@}}[$__rate_interval])))"


ROWS: dict[str, tuple[Panel, ...]] = {
    "Is it healthy?": (
        Panel("Phase", (("seep_run_phase{@} == 1", "{{phase}}"),), width=4, kind="stat"),
        Panel("Uptime", (("seep_run_uptime_seconds{@}", ""),), "s", 4, "stat"),
        Panel("Rows read", (("sum(rate(seep_source_rows_read_total{@}[$__rate_interval]))", ""),), "cps", 4, "stat"),
        Panel("Latency, p99", ((_quantile(0.99, "seep_run_latency_seconds"), ""),), "s", 4, "stat"),
        Panel("Nodes lost", (("increase(seep_nodes_lost_total{@}[$__range])", ""),), width=4, kind="stat"),
        Panel("Age of the last checkpoint", (("seep_checkpoint_age_seconds{@}", ""),), "s", 4, "stat"),
    ),
    "Rows and latency": (
        Panel(
            "Rows read and due",
            (
                (_rates("seep_source_rows_read_total"), "read {{operator}}"),
                ("seep_source_offered_rows_per_second{@}", "due {{operator}}"),
            ),
            "cps",
        ),
        Panel(
            "Latency of epochs",
            tuple((_quantile(share, "seep_run_latency_seconds"), f"p{share * 100:g}") for share in (0.5, 0.95, 0.99)),
            "s",
        ),
        Panel(
            "Rows behind, and epochs in flight",
            (("seep_source_rows_behind{@}", "rows {{operator}}"), ("seep_run_epochs_in_flight{@}", "epochs")),
        ),
        Panel("Rows in by operator", ((_rates("seep_operator_rows_in_total"), "{{operator}}"),), "cps"),
        Panel("Rows out by operator", ((_rates("seep_operator_rows_out_total"), "{{operator}}"),), "cps"),
        Panel(
            "Late, shed and dead-letter rows",
            (
                (_rates("seep_operator_late_rows_total"), "late {{operator}}"),
                (_rates("seep_source_shed_rows_total"), "shed {{operator}}"),
                (_rates("seep_operator_dead_letter_rows_total"), "dead letters {{operator}}"),
            ),
            "cps",
        ),
    ),
    "What is slow?": (
        Panel(
            "Utilisation of instances",
            (("seep_instance_utilisation_ratio{@}", "{{operator}}[{{index}}]"),),
            "percentunit",
        ),
        Panel("Instances", (("seep_operator_instances{@}", "{{operator}}"),)),
        Panel(
            "Back-pressure: epochs not fetched",
            (("seep_instance_unsent_epochs{@}", "{{operator}}[{{index}}]"),),
        ),
        Panel(
            "Age of rows when put out",
            (("max by (operator) (seep_instance_output_age_seconds{@})", "{{operator}}"),),
            "s",
        ),
        Panel(
            "Watermark lag",
            (("max by (operator) (seep_instance_watermark_lag{@})", "{{operator}}"),),
            description="In the unit of the event time: microseconds for timestamps.",
        ),
        Panel(
            "Imbalance, and share of the hottest slot",
            (
                ("seep_operator_imbalance_ratio{@}", "imbalance {{operator}}"),
                ("seep_operator_hottest_slot_ratio{@}", "hottest slot {{operator}}"),
            ),
        ),
    ),
    "State and nodes": (
        Panel("State", (("sum by (operator) (seep_instance_state_bytes{@})", "{{operator}}"),), "bytes"),
        Panel("Buffers", (("sum by (operator) (seep_instance_buffer_bytes{@})", "{{operator}}"),), "bytes"),
        Panel("Epochs to replay after a loss", (("seep_instance_unsafe_epochs{@}", "{{operator}}[{{index}}]"),)),
        Panel("CPU of nodes", (("rate(seep_node_cpu_seconds_total{@}[$__rate_interval])", "{{node}}"),)),
        Panel("Memory of nodes", (("seep_node_resident_memory_bytes{@}", "{{node}}"),), "bytes"),
        Panel("State that is being sent", (("seep_node_bulk_transfer_bytes{@} > 0", "{{node}}: {{kind}}"),), "bytes"),
        Panel(
            "Disks of nodes",
            (
                ("rate(seep_node_disk_read_bytes_total{@}[$__rate_interval])", "read {{node}}"),
                ("rate(seep_node_disk_written_bytes_total{@}[$__rate_interval])", "written {{node}}"),
            ),
            "Bps",
            12,
        ),
        Panel(
            "Network of the nodes' machines",
            (
                ("rate(seep_node_network_received_bytes_total{@}[$__rate_interval])", "received {{node}}"),
                ("rate(seep_node_network_sent_bytes_total{@}[$__rate_interval])", "sent {{node}}"),
            ),
            "Bps",
            12,
        ),
    ),
    "What changes, and what did it cost?": (
        Panel("Open decisions", (("seep_decisions_open{@}", "{{kind}}"),)),
        Panel("Scalings", (("increase(seep_scalings_total{@}[$__rate_interval])", "{{outcome}}"),)),
        Panel("Recoveries", (("increase(seep_recoveries_total{@}[$__rate_interval])", "{{outcome}}"),)),
        Panel(
            "Time of changes, p95",
            tuple(
                (_quantile(0.95, f"seep_{change}_duration_seconds"), change)
                for change in ("recovery", "scaling", "migration", "balancing", "checkpoint")
            ),
            "s",
        ),
        Panel(
            "State handed over",
            (
                (_rates("seep_operator_handed_over_bytes_total"), "{{operator}}"),
                (_rates("seep_operator_prefetched_bytes_total"), "ahead {{operator}}"),
            ),
            "Bps",
        ),
        Panel("Rows held back by handovers", ((_rates("seep_operator_held_back_rows_total"), "{{operator}}"),), "cps"),
        Panel("Checkpoints in storage", (("increase(seep_checkpoints_total{@}[$__rate_interval])", "{{outcome}}"),)),
        Panel("VMs", (("seep_pool_vms{@}", "{{state}}"),)),
        Panel("Cost: VMs paid for", (("rate(seep_pool_vm_seconds_total{@}[$__rate_interval])", "VMs"),)),
    ),
}


def dashboard() -> str:
    """The dashboard as JSON, as Grafana imports it."""
    made = {
        "uid": "seep",
        "title": "seep: a run",
        "description": "Made by python -m tools.metrics; change the panels in tools/grafana.py.",
        "tags": ["seep"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "5s",
        "time": {"from": "now-15m", "to": "now"},
        "templating": {"list": list(_variables())},
        "annotations": {"list": list(_annotations())},
        "panels": list(_panels()),
    }
    return json.dumps(made, indent=1) + "\n"


def _variables() -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "label": "Source", "type": "datasource", "query": "prometheus"}
    for name, query in (
        ("job", "label_values(seep_run_info, job)"),
        ("instance", 'label_values(seep_run_info{job="$job"}, instance)'),
    ):
        yield {"name": name, "type": "query", "datasource": _SOURCE, "query": query, "refresh": 2, "sort": 1}


def _annotations() -> Iterator[dict[str, Any]]:
    """Marks on all timelines."""
    for name, expression, colour in (
        ("A node was lost", "increase(seep_nodes_lost_total{@}[$__rate_interval]) > 0", "red"),
        ("Scaled", 'increase(seep_scalings_total{@, outcome=~"scaled_out|scaled_in"}[$__rate_interval]) > 0', "blue"),
    ):
        yield {
            "name": name,
            "datasource": _SOURCE,
            "enable": True,
            "expr": expression.replace("@", CHOSEN),
            "iconColor": colour,
        }


def _panels() -> Iterator[dict[str, Any]]:
    number, top = 0, 0
    for heading, panels in ROWS.items():
        number += 1
        place = {"h": 1, "w": _WIDTH, "x": 0, "y": top}
        yield {"id": number, "type": "row", "title": heading, "gridPos": place, "collapsed": False, "panels": []}
        top, left = top + 1, 0
        height = 4 if panels[0].kind == "stat" else 8
        for panel in panels:
            if left + panel.width > _WIDTH:
                top, left = top + height, 0
            number += 1
            place = {"h": height, "w": panel.width, "x": left, "y": top}
            yield _panel(number, panel, place)
            left += panel.width
        top += height


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"textMode": "name"} if panel.title == "Phase" else {},
        "targets": [
            {
                "refId": chr(ord("A") + at),
                "expr": expression.replace("@", CHOSEN),
                "legendFormat": legend,
                "datasource": _SOURCE,
            }
            for at, (expression, legend) in enumerate(panel.targets)
        ],
    }
