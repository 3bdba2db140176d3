"""The report of a validation: Markdown, HTML, figures and CSV. ``python -m views.report DIR``."""
