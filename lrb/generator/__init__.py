"""The traffic generator of Linear Road: second by second, from a seed, within the rules of section 9 of the spec."""

from lrb.generator.recording import Recording
from lrb.generator.settings import TrafficSettings
from lrb.generator.stream import gathered, traffic

__all__ = ["Recording", "TrafficSettings", "gathered", "traffic"]
