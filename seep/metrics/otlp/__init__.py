"""OTLP: metrics and traces of a run, pushed to an OpenTelemetry collector over HTTP."""
