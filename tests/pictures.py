"""The pictures of the documentation, as SVG. `python -m tests.pictures` writes them.

Boxes on a grid and arrows between them. Colours follow the reader's light or dark setting; what a picture says is text in
it, and its title and description are read out.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kstate_cli.restore.running.states import TRANSITIONS, RestoreState

FOLDER: Final = Path(__file__).resolve().parents[1] / "docs" / "pictures"
_STYLE: Final = """
    .ground { fill: #ffffff }
    .box { fill: #f4f6f8; stroke: #57606a; stroke-width: 1.5 }
    .kept { fill: #e6f4ea; stroke: #1a7f37; stroke-width: 1.5 }
    .end { fill: #f4f6f8; stroke: #57606a; stroke-width: 3 }
    .bad { fill: #fdecea; stroke: #b42318; stroke-width: 1.5 }
    .line { fill: none; stroke: #57606a; stroke-width: 1.5 }
    .wrong { fill: none; stroke: #b42318; stroke-width: 1.5; stroke-dasharray: 5 4 }
    .tip { fill: #57606a }
    text { fill: #1f2328; font: 14px ui-sans-serif, system-ui, sans-serif; text-anchor: middle }
    .small { font-size: 12px; fill: #57606a }
    .left { text-anchor: start }
    .code { font-family: ui-monospace, monospace; font-size: 13px }
    @media (prefers-color-scheme: dark) {
      .ground { fill: #131416 }
      .box, .end { fill: #21262d; stroke: #9198a1 }
      .kept { fill: #12361f; stroke: #3fb950 }
      .bad { fill: #3d1512; stroke: #f85149 }
      .line { stroke: #9198a1 }
      .wrong { stroke: #f85149 }
      .tip { fill: #9198a1 }
      text { fill: #e6edf3 }
      .small { fill: #9198a1 }
    }
"""


@dataclass(frozen=True, slots=True)
class Box:
    """A box by its middle, with lines of text; the first is the larger one."""

    x: int
    y: int
    lines: tuple[str, ...]
    kind: str = "box"
    width: int = 150
    height: int = 44
    code: bool = False

    def drawn(self) -> Iterator[str]:
        """Its elements."""
        remainder, top = self.x - self.width // 2, self.y - self.height // 2
        yield (
            f'<rect class="{self.kind}" x="{remainder}" y="{top}" width="{self.width}" height="{self.height}" rx="6"/>'
        )
        first = self.y + 5 - 8 * (len(self.lines) - 1)
        for number, line in enumerate(self.lines):
            kind = "small" if number else "code" if self.code else ""
            yield _label(self.x, first + 17 * number, line, kind)


def _label(x: int, y: int, text: str, kind: str = "") -> str:
    return f'<text{f" class={chr(34)}{kind}{chr(34)}" if kind else ""} x="{x}" y="{y}">{html.escape(text)}</text>'


def _arrow(points: Sequence[tuple[int, int]], kind: str = "line") -> str:
    path = " ".join(f"{'L' if number else 'M'}{x} {y}" for number, (x, y) in enumerate(points))
    return f'<path class="{kind}" d="{path}" marker-end="url(#tip)"/>'


def _picture(width: int, height: int, title: str, statement: str, parts: Sequence[str]) -> str:
    inner = "\n".join(f"  {part}" for part in parts)
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-labelledby="t d">
  <title id="t">{html.escape(title)}</title>
  <desc id="d">{html.escape(statement)}</desc>
  <style>{_STYLE}  </style>
  <defs>
    <marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto-start-reverse">
      <path class="tip" d="M0 0 L10 5 L0 10 z"/>
    </marker>
  </defs>
  <rect class="ground" width="{width}" height="{height}"/>
{inner}
</svg>
"""


# --- states of a restoration ------------------------------------------------------------------------------------------

_S: Final = RestoreState
_PLACES: Final = {
    _S.CREATED: (90, 50),
    _S.REBALANCING: (290, 50),
    _S.RESTORING: (490, 50),
    _S.RUNNING: (690, 50),
    _S.PENDING_SHUTDOWN: (490, 170),
    _S.NOT_RUNNING: (720, 170),
    _S.PENDING_ERROR: (490, 270),
    _S.ERROR: (720, 270),
}
_WAYS: Final[dict[tuple[RestoreState, RestoreState], tuple[tuple[int, int], ...]]] = {
    (_S.CREATED, _S.REBALANCING): ((165, 50), (215, 50)),
    (_S.REBALANCING, _S.RESTORING): ((365, 42), (415, 42)),
    (_S.RESTORING, _S.REBALANCING): ((415, 58), (365, 58)),
    (_S.RESTORING, _S.RUNNING): ((565, 42), (615, 42)),
    (_S.RUNNING, _S.RESTORING): ((615, 58), (565, 58)),
    (_S.RUNNING, _S.REBALANCING): ((690, 28), (690, 14), (290, 14), (290, 28)),
    (_S.CREATED, _S.PENDING_SHUTDOWN): ((75, 72), (75, 178), (405, 178)),
    (_S.REBALANCING, _S.PENDING_SHUTDOWN): ((275, 72), (275, 162), (405, 162)),
    (_S.RESTORING, _S.PENDING_SHUTDOWN): ((475, 72), (475, 148)),
    (_S.RUNNING, _S.PENDING_SHUTDOWN): ((675, 72), (675, 110), (535, 110), (535, 148)),
    (_S.PENDING_SHUTDOWN, _S.NOT_RUNNING): ((575, 170), (645, 170)),
    (_S.CREATED, _S.PENDING_ERROR): ((105, 72), (105, 278), (405, 278)),
    (_S.REBALANCING, _S.PENDING_ERROR): ((305, 72), (305, 262), (405, 262)),
    (_S.RESTORING, _S.PENDING_ERROR): ((505, 72), (505, 128), (590, 128), (590, 222), (520, 222), (520, 248)),
    (_S.RUNNING, _S.PENDING_ERROR): ((705, 72), (705, 140), (805, 140), (805, 222), (540, 222), (540, 248)),
    (_S.PENDING_SHUTDOWN, _S.PENDING_ERROR): ((460, 192), (460, 248)),
    (_S.PENDING_ERROR, _S.ERROR): ((575, 270), (645, 270)),
}
"""How the arrow of each transition goes. A transition without one is a KeyError: none is left out of the picture."""


def restoration_states() -> str:
    """The states of a restoration, with every transition that the table has."""
    parts = []
    for before, afters in TRANSITIONS.items():
        for after in RestoreState:
            if after in afters:
                kind = "wrong" if after is _S.PENDING_ERROR else "line"
                parts.append(_arrow(_WAYS[before, after], kind))
    for state, (x, y) in _PLACES.items():
        wrong = state in (_S.PENDING_ERROR, _S.ERROR)
        kind = "bad" if wrong else "end" if state.terminal else "kept" if state is _S.RUNNING else "box"
        parts += Box(x, y, (state.value,), kind, 170 if "PENDING" in state.value else 150, code=True).drawn()
    text = "; ".join(
        f"{before.value} to {', '.join(after.value for after in RestoreState if after in afters)}"
        for before, afters in TRANSITIONS.items()
        if afters
    )
    return _picture(830, 310, "States of a restoration", f"{text}. Dashed arrows show failures.", parts)


# --- the pipeline -----------------------------------------------------------------------------------------------------


def pipeline() -> str:
    """From a dump to a store."""
    parts = [
        *Box(95, 60, ("dump", "Parquet, manifest"), height=52).drawn(),
        *Box(95, 150, ("kstate.toml", "store specification"), height=52, width=170).drawn(),
        *Box(310, 105, ("judge", "leave, update,", "rebuild, reject"), height=70).drawn(),
        _arrow(((170, 60), (205, 60), (205, 95), (235, 95))),
        _arrow(((180, 150), (205, 150), (205, 115), (235, 115))),
        *Box(500, 105, ("slices", "ranges of offsets"), height=52, width=140).drawn(),
        _arrow(((385, 105), (430, 105))),
    ]
    for number, y in enumerate((40, 105, 170)):
        parts += Box(690, y, (f"task {number + 1}", "last record per key, sorted"), height=50, width=190).drawn()
        parts.append(_arrow(((570, 105), (582, 105), (582, y), (595, y))))
        parts.append(_arrow(((785, y), (797, y), (797, 215), (690, 215), (690, 244))))
    parts += [
        *Box(690, 270, ("sorted files", "from accepted attempts"), height=50, width=190).drawn(),
        *Box(495, 270, ("ingest", "in offset order"), height=50).drawn(),
        *Box(300, 270, ("offsets, Position", "in files or in the store"), height=50, width=190).drawn(),
        *Box(100, 270, ("verify, swap", "stores become visible here"), "kept", 180, 50).drawn(),
        _arrow(((595, 270), (570, 270))),
        _arrow(((420, 270), (395, 270))),
        _arrow(((205, 270), (190, 270))),
    ]
    text = (
        "From the dump and kstate.toml, kstate decides whether to leave, update or rebuild each store. It divides the "
        "partitions into ranges of offsets, called slices. Each task keeps the last record of each key, sorts the rows, "
        "and writes sorted files. kstate ingests these files in offset order, records offsets and Positions, verifies "
        "everything, and then swaps the directories."
    )
    return _picture(880, 310, "The restore pipeline", text, parts)


# --- the exchange -----------------------------------------------------------------------------------------------------


def exchange() -> str:
    """One change, and where both directories are before and after its commit."""
    before, after = 150, 580
    parts = [
        _label(before, 26, "before"),
        _label(after, 26, "after"),
        *Box(before, 66, ("state.dir/my-app", "the old directory"), "box", 230, 50, code=True).drawn(),
        *Box(
            before, 160, (".kstate/my-app/RUN/tree", "the new directory, verified"), "kept", 230, 50, code=True
        ).drawn(),
        *Box(after, 66, ("state.dir/my-app", "the new directory"), "kept", 230, 50, code=True).drawn(),
        *Box(
            after, 160, (".kstate/my-app/RUN/tree", "the old directory, kept for undo"), "box", 230, 50, code=True
        ).drawn(),
        _arrow(((265, 66), (330, 66), (400, 160), (465, 160))),
        _arrow(((265, 160), (330, 160), (400, 66), (465, 66))),
        _label(365, 56, "renameat2", "code"),
        _label(365, 182, "one system call", "small"),
        *Box(150, 250, ("interrupted here", "the next command deletes the tree"), "box", 230, 50).drawn(),
        *Box(580, 250, ("interrupted here", "the next command finishes the run"), "box", 230, 50).drawn(),
        _arrow(((695, 160), (725, 160), (725, 66), (697, 66))),
        _label(735, 117, "undo swaps them back", "small left"),
    ]
    text = (
        "Before the swap, the old directory is the application directory, and the new directory is in the run's tree. "
        "kstate swaps them with a single renameat2 call. After the swap, the new directory is the application "
        "directory. The old directory stays in the tree until you run kstate clean."
    )
    return _picture(880, 290, "kstate swaps two directories", text, parts)


PICTURES: Final[dict[str, Callable[[], str]]] = {
    "restoration-states.svg": restoration_states,
    "restore-pipeline.svg": pipeline,
    "exchange.svg": exchange,
}


def write() -> None:
    """Writes all of them."""
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / name).write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    write()
