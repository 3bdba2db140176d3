"""Calibrating links from point-to-point patterns, and measuring how wrong predictions are."""
