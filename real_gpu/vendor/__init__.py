"""The library's own collectives and trainings."""
