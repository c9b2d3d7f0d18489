"""Text of unknown origin for a terminal: nothing in it can move the cursor, or be hidden."""

from __future__ import annotations

import re

_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # control characters, line breaks and ESC among them
    "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"  # line breaks, and marks that turn text round
    "\xad\u180e\u200b\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"  # no shape
    "\ud800-\udfff]"  # halves of surrogate pairs, which no terminal can be sent
)


def visible(text: str) -> str:
    r"""Return a text in one line, with everything that a terminal would obey or hide escaped.

    >>> print(visible("two\nlines, \x1b[31mred\x9b0m, \u202eturned round"))
    two\nlines, \x1b[31mred\x9b0m, \u202eturned round
    """
    return _HIDDEN.sub(lambda found: ascii(found.group())[1:-1], text)
