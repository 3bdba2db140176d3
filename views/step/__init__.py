"""*One training step*: its runs, pictures, tables, sweep and sentences."""
