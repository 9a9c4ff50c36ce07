"""Traffic for Linear Road: made second by second, from a seed, as legal as section 9 of the spec asks for."""

from lrb.generator.recording import Recording
from lrb.generator.settings import TrafficSettings
from lrb.generator.stream import gathered, traffic

__all__ = ["Recording", "TrafficSettings", "gathered", "traffic"]
