"""What to say of something in the address that is not accepted."""

from __future__ import annotations

from views.text import Text


def bad_value(key: str, asked: str, default: str, text: Text) -> str:
    """The value, and what is shown instead."""
    return text("common.notice", name=key, value=printable(asked), shown=default)


def printable(asked: str) -> str:
    """What somebody wrote, short, and without what would mean something in Markdown's backticks."""
    asked = asked if len(asked) <= 40 else asked[:37] + "..."
    return "".join(c if c.isprintable() and c != "`" else "?" for c in asked)
