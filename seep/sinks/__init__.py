"""Sinks: where rows go to, each epoch exactly once."""

from seep.sinks.file_sinks import csv as csv
from seep.sinks.file_sinks import json_lines as json_lines
from seep.sinks.file_sinks import parquet as parquet
from seep.sinks.in_driver import callback as callback
from seep.sinks.in_driver import collect as collect
from seep.sinks.null import discard as discard
from seep.sinks.reading import read as read
