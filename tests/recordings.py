"""Recorded terminals, as SVG that plays. `python -m tests.recordings` records them anew.

What a terminal of 100 columns shows of each command is kept as text in `tests/screens`, as other screens are: a command
behind a `$`, then its lines, the escape character as `␛`. The picture is made of that alone. Whoever asked for less
motion is shown the last of its frames.
"""

from __future__ import annotations

import fcntl
import html
import os
import pty
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.coloured import ESCAPE, pieces, plain
from tests.readme import ROOT, STATE_DIR
from tests.terminal import shown_on

FOLDER: Final = ROOT / "docs" / "recordings"
FINAL: Final = ROOT / "tests" / "screens"
COLUMNS, ROWS = 100, 28
_APP: Final = f"{STATE_DIR}/orders"
_RESTORE: Final = f"kstate restore {_APP} --from-changelog examples/dump --spec examples/dump.toml --for 4.3"


@dataclass(frozen=True, slots=True)
class Recording:
    """A story: its title, what it shows, whether the directory is there at first, and its commands."""

    title: str
    description: str
    there: bool
    commands: tuple[str, ...]


RECORDINGS: Final = {
    "downgrade": Recording(
        "A downgrade to an older release, and its undo",
        "kstate lists a directory of Kafka Streams 4.3.1, migrates it to 4.2, lists it again, and undoes the migration.",
        True,
        (f"kstate ls {_APP}", f"kstate migrate {_APP} --to 4.2", f"kstate ls {_APP}", f"kstate undo {_APP}"),
    ),
    "restore": Recording(
        "A lost directory, restored from a dump",
        "kstate restores a lost directory from a dump of its changelogs, lists it, and predicts the next start.",
        False,
        (_RESTORE, f"kstate ls {_APP}", f"kstate check {_APP} --for 4.3 --dump examples/dump"),
    ),
}


_SECONDS: Final = re.compile(r"^((?:\d+_\d+|global)/\S+ .* )\d+\.\d$")
"""What a store took is another time on each machine."""

# --- recording --------------------------------------------------------------------------------------------------------


def record(recording: Recording) -> str:
    """The text that is kept of it: what its commands print now."""
    state_dir = tempfile.mkdtemp(prefix="kst", dir="/tmp")
    assert len(state_dir) == len(STATE_DIR), "where lines are folded depends on it"
    here = tempfile.mkdtemp(prefix="kstate-recording-")
    try:
        (Path(here) / "examples").symlink_to(ROOT / "examples")
        if recording.there:
            subprocess.run(["tar", "-xJf", ROOT / "examples" / "orders.tar.xz", "-C", state_dir], check=True)
        lines: list[str] = []
        for command in recording.commands:
            output = _on_a_terminal(command.replace(STATE_DIR, state_dir), here)
            lines += [f"$ {command}", *(line.replace(state_dir, STATE_DIR) for line in output)]
    finally:
        shutil.rmtree(state_dir)
        shutil.rmtree(here)
    return "\n".join(_SECONDS.sub(r"\g<1>0.0", line) for line in lines).replace("\x1b", ESCAPE) + "\n"


def _on_a_terminal(command: str, here: str) -> list[str]:
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    dropped = ("COLUMNS", "LINES", "NO_COLOR", "COLORTERM", "FORCE_COLOR")
    own = {name: text for name, text in os.environ.items() if name not in dropped and not name.startswith("KSTATE_")}
    words = [str(Path(sys.executable).parent / "kstate"), *shlex.split(command)[1:]]
    with subprocess.Popen(
        words, cwd=here, env={**own, "TERM": "xterm"}, stdin=side, stdout=side, stderr=side, close_fds=True
    ) as process:
        os.close(side)
        content = shown_on(main)
    assert process.returncode in (0, 1), content.decode()
    return final_screen(content.decode())


_CONTROL: Final = re.compile(r"\x1b\[(\??[0-9;]*)([A-HJKSTfhlsu])|\r\n|\r|\n")


def final_screen(sent: str) -> list[str]:
    """The lines that stay, with their styles: bars that were drawn over and wiped away are gone."""
    lines, row, start = [""], 0, 0
    for control in [*_CONTROL.finditer(sent), None]:
        lines[row] += sent[start : control.start() if control else len(sent)]
        if control is None:
            break
        start = control.end()
        if control[0] in ("\n", "\r\n"):
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif control[0] == "\r" or control[2] == "K":
            lines[row] = ""  # a bar is drawn from the left anew, and wiped as a whole
        elif control[2] == "A":
            row -= int(control[1] or 1)
        else:
            assert control[1].startswith("?"), f"{control[0]!r}: a terminal would do something here"
    rstrips = [line.rstrip() for line in lines]
    return [line for line in rstrips if plain(line)]


# --- drawing ----------------------------------------------------------------------------------------------------------

_WIDE, _HIGH, _EDGE = 8.4, 18, 14
_WIDTH: Final = round(COLUMNS * _WIDE) + 2 * _EDGE
_HEIGHT: Final = ROWS * _HIGH + 2 * _EDGE
_COLOURS: Final = """
    .ground { fill: #16181d }
    text { fill: #d8dce3; font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; white-space: pre }
    .bold { font-weight: bold; fill: #ffffff }
    .dim { fill: #868d98 }
    .red { fill: #ff7b72 }
    .green { fill: #56d364 }
    .yellow { fill: #e3b341 }
    .cyan { fill: #76e3ea }
    .prompt { fill: #56d364 }
"""


def frames(backup: str) -> Iterator[tuple[list[str], float]]:
    """What is on the screen, and for how many seconds: a command as it is typed, then what it prints, page by page."""
    screen: list[str] = []
    for part in re.split(r"^(?=\$ )", backup, flags=re.MULTILINE)[1:]:
        command, *printed = part.splitlines()
        lines = [row for line in printed for row in _rows(line)]
        screen = [*screen, *_rows(command)][-ROWS:]
        yield screen, 1.6
        page = ROWS - 2
        for start in range(0, len(lines), page):
            output = lines[start : start + page]
            screen = [*screen, *output][-ROWS:]
            yield screen, 1.5 + 0.2 * len(output)


def _rows(line: str) -> list[str]:
    """A line as a terminal breaks it; what has styles was laid out for the width.

    A command is broken before an option instead, as a person types it.
    """
    if line.startswith("$ ") and len(line) > COLUMNS:
        lines = [""]
        for part in re.split(" (?=--)", line):
            if lines[-1] and len(lines[-1]) + 1 + len(part) > COLUMNS:
                lines.append(part)
            else:
                lines[-1] += f" {part}" if lines[-1] else part
        return lines
    return [line] if ESCAPE in line else [line[start : start + COLUMNS] for start in range(0, len(line), COLUMNS)]


def draw(recording: Recording, backup: str) -> str:
    """The picture."""
    film = [*frames(backup)]
    whole = sum(seconds for _, seconds in film)
    steps, past = [], 0.0
    for number, (_, seconds) in enumerate(film):
        steps.append(f"{100 * past / whole:.3f}% {{ transform: translateY({-number * _HEIGHT}px) }}")
        past += seconds
    strip = "\n".join(_frame(number, lines) for number, (lines, _) in enumerate(film))
    last = -(len(film) - 1) * _HEIGHT
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-labelledby="t d">
  <title id="t">{html.escape(recording.title)}</title>
  <desc id="d">{html.escape(recording.description)}</desc>
  <style>{_COLOURS}    .film {{ animation: play {whole:.1f}s step-end {-film[0][1]:.1f}s infinite }}
    @keyframes play {{ {" ".join(steps)} }}
    @media (prefers-reduced-motion: reduce) {{ .film {{ animation: none; transform: translateY({last}px) }} }}
  </style>
  <rect class="ground" width="{_WIDTH}" height="{_HEIGHT}" rx="8"/>
  <g class="film">
{strip}
  </g>
</svg>
"""


def _frame(number: int, lines: Sequence[str]) -> str:
    drawn = []
    for row, line in enumerate(lines):
        y = number * _HEIGHT + _EDGE + (row + 1) * _HIGH - 4
        drawn.append(f'  <text x="{_EDGE}" y="{y}" textLength="{len(plain(line)) * _WIDE:.1f}">{_spans(line)}</text>')
    return "\n".join(drawn)


def _spans(line: str) -> str:
    if line.startswith("$ "):
        return f'<tspan class="prompt">$</tspan><tspan class="bold">{html.escape(line[1:])}</tspan>'
    return "".join(
        f'<tspan class="{" ".join(styles)}">{html.escape(text)}</tspan>' if styles else html.escape(text)
        for text, styles in pieces(line)
    )


def file_of(name: str) -> Path:
    """Where the text of a recording is kept."""
    return FINAL / f"recorded-{name}.txt"


def picture_file(name: str) -> Path:
    """Where its picture is."""
    return FOLDER / f"{name}.svg"


def write() -> None:
    """Records and draws all of them."""
    FOLDER.mkdir(exist_ok=True)
    for name, recording in RECORDINGS.items():
        backup = record(recording)
        file_of(name).write_text(backup, encoding="utf-8")
        picture_file(name).write_text(draw(recording, backup), encoding="utf-8")


if __name__ == "__main__":
    write()
