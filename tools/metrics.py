"""Writes docs/metrics.md and the dashboard, both from the definitions: python -m tools.metrics."""

from __future__ import annotations

from pathlib import Path

from seep.metrics.definitions import GROUPS, METRICS
from seep.metrics.metric import Metric
from seep.metrics.otlp.names import UNITS, otlp_name
from tools.grafana import dashboard

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "metrics.md"
DASHBOARD = ROOT / "deploy" / "grafana" / "seep.json"

_INTRODUCTION = """\
# Metrics

The driver of a run serves metrics for [Prometheus](https://prometheus.io), and pushes them with traces to a collector
of [OpenTelemetry](https://opentelemetry.io), if asked to. This page is made of their definitions
([`seep/metrics/`](../seep/metrics)) by `python -m tools.metrics`; everything in it is read from the
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

## How to push to a collector

It needs `pip install 'seep-streaming[otlp]'`. Then `--otlp http://127.0.0.1:4318`, or `seep.launch(query,
metrics={"otlp": {"url": "http://127.0.0.1:4318"}})`, pushes the metrics below and the traces of the run by OTLP over
HTTP (in protobuf) to `/v1/metrics` and `/v1/traces` below this address. Without it, nothing is sent and no library is
loaded. In a [policy file](configuration.md):

```yaml
metrics:
  otlp:
    url: https://collector.example.org
    headers_file: /etc/seep/otlp-headers   # such as `Authorization: Bearer …`, one header per line
    interval: 10s
    timeout: 5s
```

- The variables `OTEL_EXPORTER_OTLP_HEADERS`, `…_CERTIFICATE`, `…_CLIENT_KEY`, `…_CLIENT_CERTIFICATE` and
  `…_COMPRESSION`, also with `METRICS_` or `TRACES_` before the last part, and `OTEL_RESOURCE_ATTRIBUTES` mean what they
  mean for every exporter of OpenTelemetry. Headers of the file replace those of the environment. The values of headers
  never stand in a [log line](logs.md#secrets); an address with a password in it is refused.
- All data have the resource `service.name` (the query), `service.instance.id` and "seep.run" (the id of the run).
- **Metrics** are the same as on the page, with the same labels as attributes, [under their names in
  OpenTelemetry](#names-in-opentelemetry): with dots after the first two words, and without `_total` and without the
  unit, which stands beside the name. Counters and histograms are cumulative since the query began to run; a histogram
  has the record's own counts in the bounds of the page. A system that translates OTLP by the rules of Prometheus has
  the names of the page again, so that the dashboard, the alerts and the queries below work there too.
- **Traces** are those of [the record](record.md#traces), with their ids, attributes and true times: one trace for each
  change, recovery and checkpoint in storage. A trace is pushed once and whole, when all of it has ended. The reason of
  an error is the message of the span's status.
- A push begins after each interval, unless the one before has not ended. What could not be delivered is pushed the next
  time: metrics as they are then, traces from the record, which keeps the newest 2,000 spans. After an answer that
  [OTLP](https://opentelemetry.io/docs/specs/otlp/#failures-1) calls final (4xx but 429, and some others), these traces
  are given up. A collector that is down or slow does not hold up the run, and nothing is queued for it.
- The last push is made at the end of the run, which waits for it no longer than `timeout`.
- The first failure of several in a row, and the end of the row, are each a [log line](logs.md) of `seep.metrics`; all
  are [counted](#pushes-to-a-collector).

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
    return _INTRODUCTION + questions + "## All metrics\n\n" + "\n".join(map(_table, GROUPS)) + "\n" + _names()


def _names() -> str:
    """All names in OpenTelemetry with their units, as aligned columns; they look like names of modules otherwise."""
    rows = [(otlp_name(each), UNITS[each.unit] or "-", each.name) for each in METRICS]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    lines = (f"{name:{widths[0]}}  {unit:{widths[1]}}  {page}\n" for name, unit, page in rows)
    heading = "## Names in OpenTelemetry\n\nName, unit (`By` is bytes), and name on the page:\n\n"
    return f"{heading}```text\n{''.join(lines)}```\n"


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
