"""Sources: where rows come from, readable again from any recorded position."""

from seep.rows.rate import Profile as Profile
from seep.rows.rate import Rate as Rate
from seep.sources.batches import memory as memory
from seep.sources.csv_files import csv as csv
from seep.sources.custom import custom as custom
from seep.sources.generators import generator as generator
from seep.sources.json_files import json_lines as json_lines
from seep.sources.parquet_files import parquet as parquet
from seep.sources.reader import Block as Block
from seep.sources.reader import SourceReader as SourceReader
