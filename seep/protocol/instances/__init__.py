"""The instances' machines: stateful and stateless operators, sources and sinks."""
