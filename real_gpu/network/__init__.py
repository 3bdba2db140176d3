"""A cluster out of one machine: what is built, how its wires are set, and whether to believe it."""
