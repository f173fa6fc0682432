"""How objects show themselves in a notebook: a line that opens to the text which ``print`` shows."""

from __future__ import annotations

from html import escape


def folded(line: str, text: str, opened: bool = False) -> str:
    """HTML of a line and, below it, a text in equal-width letters that opens on a click.

    Args:
        line: always seen.
        text: as printed; what is special in HTML is escaped.
        opened: whether the text is seen at once.

    Example:
        >>> folded("<Network 'a'>", "x < y")
        '<details><summary>&lt;Network &#x27;a&#x27;&gt;</summary><pre>x &lt; y</pre></details>'
    """
    start = "<details open>" if opened else "<details>"
    return f"{start}<summary>{escape(line)}</summary><pre>{escape(text)}</pre></details>"
