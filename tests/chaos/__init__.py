"""Chaos: real servers killed and frozen, connections cut, processes killed at every write. `make chaos`."""
