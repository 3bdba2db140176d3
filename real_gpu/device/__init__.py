"""Several ranks on one device: buffers in one memory, its clock and its counters."""
