"""*Measured against simulated*: sets of cells, overlays, traces, and a reader's own files."""
