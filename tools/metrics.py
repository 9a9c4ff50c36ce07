"""Writes docs/metrics.md and the dashboard, both from the definitions: python -m tools.metrics."""

from __future__ import annotations

from pathlib import Path

from seep.metrics.definitions import GROUPS
from seep.metrics.metric import Metric
from tools.grafana import dashboard

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "metrics.md"
DASHBOARD = ROOT / "deploy" / "grafana" / "seep.json"

_INTRODUCTION = """\
# Metrics

The driver of a run serves metrics for [Prometheus](https://prometheus.io), if asked to. This page is made of their
definitions ([`seep/metrics/`](../seep/metrics)) by `python -m tools.metrics`; everything in it is read from the
[record](record.md).

## How to scrape a run

It needs `pip install 'seep-streaming[metrics]'`. Then `--metrics 9400`, or `seep.launch(query, metrics=9400)`, serves
the page `/metrics` on the driver while the run lasts. Without a port, or with 0 or `metrics=True`, it takes any free
one; the address is printed when the run starts, and `run.metrics_url` has it. Unless it is asked for, nothing is
opened and the library is not imported. In a [policy file](configuration.md):

```yaml
metrics:
  port: 9400
  host: 127.0.0.1   # 0.0.0.0 to be scraped from other machines
```

Only the driver's machine can scrape unless `host` says otherwise. The page has no password: it names operators and
nodes, and no data; let a firewall or a proxy decide who sees it.

```
curl http://127.0.0.1:9400/metrics
```

For Prometheus:

```yaml
scrape_configs:
  - job_name: seep
    scrape_interval: 5s
    static_configs:
      - targets: ["127.0.0.1:9400"]
rule_files:
  - alerts.yaml
```

[`deploy/grafana/seep.json`](../deploy/grafana/seep.json) is a dashboard for Grafana, to be imported there;
[`deploy/grafana/alerts.yaml`](../deploy/grafana/alerts.yaml) has rules for alerts. Tests check all names and labels in
them, and those of the queries below.

- The page shows the run as it was at most half a second before the scrape. It is Prometheus' text format, or
  OpenMetrics if the scraper accepts that.
- A scraper cannot hold up the driver: the page is made on a thread of its own, from an immutable value, once for each
  moment, however often it is asked for. At most 8 connections are served at a time, and each has 5 s from its opening
  to the last byte of its answer.
- Counters never go back while their series exists. What an instance has reported stays counted when its node is lost,
  what it had not reported is missing, and a row that is processed again counts again; [the report](cli.md#the-report)
  has exact numbers at the end. Counters of an operator also have those of its past instances.
- Labels are few, and their values are bounded: operators, indexes of instances, live nodes, and words that this page
  lists. The series of an instance that was retired and of a node that was lost vanish. `operator="counter"`,
  `index="0"` is the instance `counter[0]`; Prometheus has the label `instance` for the process that it scrapes.

## Questions, and queries that answer them

"""

#: Question -> query.
QUESTIONS = {
    "Does it run, and did it fail?": "seep_run_phase == 1",
    "How many rows come in per second?": "sum by (operator) (rate(seep_source_rows_read_total[1m]))",
    "How many rows do the sinks get per second? (Name your sinks.)": (
        'sum(rate(seep_operator_rows_in_total{operator="out"}[1m]))'
    ),
    "How late are results?": "histogram_quantile(0.99, sum by (le) (rate(seep_run_latency_seconds_bucket[1m])))",
    "Does it keep up with its sources?": "deriv(seep_source_rows_behind[2m]) > 0 and seep_source_rows_behind > 0",
    "What is slow? The fullest instances:": "topk(5, seep_instance_utilisation_ratio)",
    "Where does back-pressure begin? Instances whose receivers do not fetch:": "topk(5, seep_instance_unsent_epochs)",
    "Is event time stuck?": "max by (operator) (seep_instance_watermark_lag)",
    "Is the load uneven, or one key too hot?": (
        "seep_operator_imbalance_ratio > 2 or seep_operator_hottest_slot_ratio > 0.3"
    ),
    "Are rows lost to lateness, shedding or errors?": (
        "sum(rate(seep_operator_late_rows_total[5m])) + sum(rate(seep_source_shed_rows_total[5m])) "
        "+ sum(rate(seep_operator_dead_letter_rows_total[5m]))"
    ),
    "Did it scale, and how did that end?": "sum by (outcome) (increase(seep_scalings_total[1h]))",
    "Is a decision stuck?": "max by (kind) (seep_decisions_oldest_seconds) > 60",
    "Was a node lost, and has everything recovered?": (
        "increase(seep_nodes_lost_total[1h]) > 0 or seep_recoveries_open > 0"
    ),
    "What did recoveries take?": (
        "rate(seep_recovery_duration_seconds_sum[1h]) / rate(seep_recovery_duration_seconds_count[1h])"
    ),
    "How much would be replayed after a loss now?": "max by (operator) (seep_instance_unsafe_epochs)",
    "How old is the last checkpoint, and do they fail?": (
        'seep_checkpoint_age_seconds > 300 or increase(seep_checkpoints_total{outcome="failed"}[10m]) > 0'
    ),
    "How much state is there, and where?": (
        "sum by (node) (seep_instance_state_bytes "
        "* on (job, instance, operator, index) group_left (node) seep_instance_info)"
    ),
    "Which node is short of CPU?": "rate(seep_node_cpu_seconds_total[1m]) / seep_node_cores > 0.9",
    "What does the pool cost? VMs that are paid for, on average:": "rate(seep_pool_vm_seconds_total[10m])",
}


def page() -> str:
    """The page, with all definitions."""
    questions = "".join(f"{question}\n\n```promql\n{query}\n```\n\n" for question, query in QUESTIONS.items())
    return _INTRODUCTION + questions + "## All metrics\n\n" + "\n".join(map(_table, GROUPS))


def _table(heading: str) -> str:
    rows = "".join(map(_row, GROUPS[heading]))
    return f"### {heading}\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n{rows}"


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {metric.type} | {labels} | {metric.help}{_values(metric)} |\n"


def _values(metric: Metric) -> str:
    """The values of a label that has few; those of events are in the page on runs."""
    if metric.choice is None:
        return ""
    if len(metric.choice.values) > 20:
        return f" `{metric.choice.label}` is one of [all kinds](run.md#events), with underscores."
    return f" `{metric.choice.label}`: {', '.join(f'`{value}`' for value in metric.choice.values)}."


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    DASHBOARD.parent.mkdir(exist_ok=True)
    DASHBOARD.write_text(dashboard(), encoding="utf-8")
