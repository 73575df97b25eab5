"""Sends each text column as one joined text, which the server splits again.

The client library encodes every element of an array by itself, and most columns are text; a joined
column costs one element.  The separator and the mark for NULL are two characters that occur in no
element; the first candidates almost always qualify.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

MARKS = ("\x1f", "\x1e")
"""The separator, and the mark for NULL."""
SPLIT_TEXTS = "coalesce(nullif(string_to_array({parameter}, $1, $2), '{{}}'), '{{\"\"}}')"
"""SQL that splits a column; a column is never empty, so an empty result is one empty text."""

UNUSED = "CASE WHEN false THEN $1::text || $2::text END"
"""NULL as SQL that names the marks, so that they have a type if no column is text."""


def join_texts(arguments: Sequence[Any], are_texts: Sequence[bool]) -> list[Any]:
    """Return the two marks, then the arguments with every text column joined to one text."""
    found = _try_join(arguments, are_texts, *MARKS)
    if found is None:
        columns = (one for one, is_text in zip(arguments, are_texts, strict=True) if is_text)
        used = set("".join(one or "" for one in chain.from_iterable(columns)))
        free = (chr(number) for number in range(0xE000, 0x110000) if chr(number) not in used)
        marks = (next(free), next(free))
        return [*marks, *(_try_join(arguments, are_texts, *marks) or ())]
    return [*MARKS, *found]


def _try_join(
    arguments: Sequence[Any], are_texts: Iterable[bool], separator: str, null_mark: str
) -> list[Any] | None:
    """Join the text columns; None if a mark occurs in an element."""
    found: list[Any] = []
    for column, is_text in zip(arguments, are_texts, strict=True):
        if not is_text:
            found.append(column)
            continue
        nulls = 0
        try:
            text = separator.join(column)
        except TypeError:  # some are NULL; the second join raises for other types
            nulls = column.count(None)
            text = separator.join([null_mark if one is None else one for one in column])
        if text.count(separator) != len(column) - 1 or text.count(null_mark) != nulls:
            return None
        found.append(text)
    return found
