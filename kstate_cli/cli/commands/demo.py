"""``kstate demo``: downgrade and undo on a bundled directory of 4.3.1, in a temporary folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kstate_cli import option, temporary
from kstate_cli.change.commits_made import forget_commits
from kstate_cli.cli.environment import nothing_typed
from kstate_cli.cli.help_examples import Example
from kstate_cli.cli.output import Format, say
from kstate_cli.texts import EXAMPLES, command, relative_paths, shell

if TYPE_CHECKING:
    from pathlib import Path

HELP_EXAMPLES: Final = {
    "demo": (
        Example("Downgrade from 4.3 to 4.2, and undo the downgrade", "demo"),
        Example("Print the plan for your own directory", "migrate /data/app --to 4.2 --dry-run"),
    ),
}


_ARCHIVE: Final = "orders.tar.xz"


def demo() -> int:
    """List a bundled Kafka Streams 4.3.1 directory, downgrade it to 4.2, list it again, and undo the downgrade."""
    import tarfile
    from importlib.resources import files

    from kstate_cli.statedir.find import find_application

    with temporary.private_folder("demo") as folder:
        with (
            files("kstate_cli").joinpath(EXAMPLES).joinpath(_ARCHIVE).open("rb") as archive,
            tarfile.open(fileobj=archive, mode="r:xz") as tar,
        ):
            if hasattr(tarfile, "data_filter"):
                # The filter refuses links and paths that lead out of the folder.
                tar.extractall(folder, filter="data")
            else:  # Python 3.11.2 of Debian 12 has no filters yet; the archive is our own
                tar.extractall(folder)  # noqa: S202
        app = find_application(folder)
        # The folder is removed at the end: the relative paths fit where users unpack the same directory themselves.
        with relative_paths(app.parent):
            _run(app)
    say(
        "kstate has removed the demo directory. To unpack it here and run these commands yourself: "
        f"{command('examples', option.OUT, EXAMPLES)} && {shell('tar', '-xJf', f'{EXAMPLES}/{_ARCHIVE}')}"
    )
    return 0


def _run(app: Path) -> None:
    from kstate_cli.cli.commands.ls import ls
    from kstate_cli.cli.commands.migrate import migrate
    from kstate_cli.cli.commands.undo import undo

    say(f"1. List a state directory that Kafka Streams 4.3.1 wrote: {command('ls', app)}")
    ls(nothing_typed(), app)
    say(f"2. Downgrade the directory to 4.2 without restoring stores: {command('migrate', app, option.TO, '4.2')}")
    migrate(app, to="4.2", warnings_ok=True)
    say(f"3. List the directory, which is now in the 4.2 format: {command('ls', app)}")
    ls(nothing_typed(), app)
    say(f"4. Undo the downgrade: {command('undo', app)}")
    undo(app)
    forget_commits()  # the folder is only ours, and goes with all that was changed in it
    ls(nothing_typed(), app, output=Format.table)
