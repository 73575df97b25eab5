"""Columns of text on their way to the server: each as one text, which the server takes apart.

The client library looks at every element of an array by itself, and most of what we write is text;
joined, a column costs it one element.  What separates the elements and what stands for none of them
are two characters that occur in none: almost always the first two that come to mind.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

MARKS = ("\x1f", "\x1e")
"""What separates two elements, and what stands for NULL."""
TAKEN_APART = "coalesce(nullif(string_to_array({given}, $1, $2), '{{}}'), '{{\"\"}}')"
"""How the server does it; a column is never empty, so what looks so is one empty text."""

UNUSED = "CASE WHEN false THEN $1::text || $2::text END"
"""NULL; it says of what type the marks are where no column is text."""


def joined(arguments: Sequence[Any], are_texts: Sequence[bool]) -> list[Any]:
    """The two marks, and the arguments with every column of text as one text."""
    found = _joined(arguments, are_texts, *MARKS)
    if found is None:
        columns = (one for one, is_text in zip(arguments, are_texts, strict=True) if is_text)
        used = set("".join(one or "" for one in chain.from_iterable(columns)))
        free = (chr(number) for number in range(0xE000, 0x110000) if chr(number) not in used)
        marks = (next(free), next(free))
        return [*marks, *(_joined(arguments, are_texts, *marks) or ())]
    return [*MARKS, *found]


def _joined(
    arguments: Sequence[Any], are_texts: Iterable[bool], separator: str, nothing: str
) -> list[Any] | None:
    """None if a mark occurs in some element."""
    found: list[Any] = []
    for column, is_text in zip(arguments, are_texts, strict=True):
        if not is_text:
            found.append(column)
            continue
        nulls = 0
        try:
            text = separator.join(column)
        except TypeError:  # some are NULL; what is no text is refused by the second attempt
            nulls = column.count(None)
            text = separator.join([nothing if one is None else one for one in column])
        if text.count(separator) != len(column) - 1 or text.count(nothing) != nulls:
            return None
        found.append(text)
    return found
