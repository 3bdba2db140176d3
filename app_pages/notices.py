"""What to say of something in the address that is not accepted."""

from __future__ import annotations

from collections.abc import Sequence

from views.text import Text


def bad_value(key: str, asked: str, accepted: Sequence[str], shown: str, text: Text) -> str:
    """The value, what is shown instead, and what would have been accepted."""
    return text(
        "address.bad_value",
        name=key,
        value=printable(asked),
        shown=shown,
        accepted=listed(accepted, text),
    )


def given_twice(key: str, shown: str, text: Text) -> str:
    """Of one choice two values."""
    return text("address.twice", name=key, shown=shown)


def unknown(key: str, accepted: Sequence[str], text: Text) -> str:
    """A parameter that the page does not have, or not with its other choices."""
    return text("address.unknown", name=printable(key), accepted=listed(accepted, text))


def listed(accepted: Sequence[str], text: Text) -> str:
    """Whole numbers in a row by their ends, anything else one by one.

    >>> from views.text import load_text
    >>> listed(["2", "3", "4", "5"], load_text("en")), listed(["ps", "ring"], load_text("en"))
    ('`2` to `5`', '`ps`, `ring`')
    """
    first = accepted[0]
    if len(accepted) > 2 and first.isdecimal():
        in_a_row = [str(int(first) + place) for place in range(len(accepted))]
        if list(accepted) == in_a_row:
            return text("address.range", low=first, high=accepted[-1])
    return ", ".join(f"`{one}`" for one in accepted)


def printable(asked: str) -> str:
    """What somebody wrote, short, and without what would mean something in Markdown's backticks."""
    asked = asked if len(asked) <= 40 else asked[:37] + "..."
    return "".join(c if c.isprintable() and c != "`" else "?" for c in asked)
