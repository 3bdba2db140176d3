"""The same schedules on real processes: launch, replay, shaped network, records."""
