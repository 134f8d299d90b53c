"""How the pages in this folder become a site: ``scripts/docs.sh`` builds it, and every warning is an error there.

Links are written for the files, as an editor or a forge follows them. Where one leads out of this folder, to a file
that the site has as a page of its own, it is turned into a link to that page.
"""

from __future__ import annotations

import html
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx

project = "kstate"
author = "kstate authors"
html_title = "kstate"
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["tables.css", "screens.css"]
html_copy_source = False
html_show_copyright = False
extensions = ["myst_parser", "sphinx_copybutton"]
copybutton_prompt_text = "$ "
myst_heading_anchors = 4
# Texts of commands and of Kafka Streams stand as they are printed: no curled quotes, no dash for two hyphens.
smartquotes = False
highlight_language = "none"
linkcheck_timeout = 20

_DOCS: Final = Path(__file__).resolve().parent
_ROOT: Final = _DOCS.parent
_PAGES: Final = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "examples/README.md": "examples.md",
    "examples/walkthrough.md": "how-to/restore.md",
}
"""Files outside this folder, and the pages that have their text."""
_LINK: Final = re.compile(r"(\[[^\]]*\])\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")


def _relinked(text: str, file: Path, page: Path) -> str:
    """The text of ``file``, its links written for ``page``, which shows it."""

    def link(match: re.Match[str]) -> str:
        name, target, anchor = match[1], (file.parent / match[2]).resolve(), match[3] or ""
        if target.is_dir():
            return name[1:-1]
        if target.is_relative_to(_ROOT) and str(target.relative_to(_ROOT)) in _PAGES:
            target = _DOCS / _PAGES[str(target.relative_to(_ROOT))]
        return f"{name}({os.path.relpath(target, page.parent)}{anchor})"

    return _LINK.sub(link, text)


def screens_page(kept: Path = _ROOT / "tests" / "screens") -> Iterator[str]:
    """The lines that the page of screens has besides its own: each command's, in colours, at both sizes."""
    sys.path.insert(0, str(_ROOT))  # tests.coloured knows how screens are kept
    from tests.coloured import pieces

    for size, title in (("80x24", "80 columns"), ("200x50", "200 columns")):
        yield f"\n## {title}\n"
        text = (kept / f"{size}-coloured.txt").read_text(encoding="utf-8")
        for part in re.split(r"^(?=\$ kstate )", text, flags=re.MULTILINE)[1:]:
            command, *lines = part.rstrip("\n").split("\n")
            yield f"\n### {command.removeprefix('$ ')}\n"
            yield '<pre class="screen">'
            for line in lines:
                # A line that is empty would end the block of HTML.
                yield "".join(_piece(text, styles) for text, styles in pieces(line)) or "&#8203;"
            yield "</pre>\n"


def _piece(text: str, styles: tuple[str, ...]) -> str:
    shown = html.escape(text)
    return f'<span class="{" ".join(styles)}">{shown}</span>' if styles else shown


def _read_page(app: Sphinx, docname: str, source: list[str]) -> None:
    page = _DOCS / f"{docname}.md"
    source[0] = _relinked(source[0], page, page)
    if docname == "screens":
        source[0] += "\n".join(screens_page())


def _read_included(app: Sphinx, relative_path: Path, parent_docname: str, content: list[str]) -> None:
    page = _DOCS / f"{app.env.docname}.md"  # of the parent's name MyST gives the last word only
    content[0] = _relinked(content[0], (_DOCS / relative_path).resolve(), page)


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _read_page)
    app.connect("include-read", _read_included)
