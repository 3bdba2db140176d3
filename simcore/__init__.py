"""The core of SyncScope: schedules, what they mean, and how long they take. NumPy only."""
