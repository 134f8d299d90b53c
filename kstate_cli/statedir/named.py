"""Tasks and stores that a command was told to look at, and that are not there."""

from __future__ import annotations

from collections.abc import Iterable

from kstate_cli.errors import UsageError
from kstate_cli.statedir.model import Application
from kstate_cli.texts import command, did_you_mean


def no_such(app: Application, tasks: Iterable[str], stores: Iterable[str]) -> UsageError:
    """The error where no store of the application is in one of ``tasks`` and is one of ``stores``."""
    meant = did_you_mean(tasks, {task.name for task in app.tasks})
    meant = meant or did_you_mean(stores, {store.name for task in app.tasks for store in task.stores})
    return UsageError("no such task or store here", hint=f"{meant}what there is: {command('ls', app.path)}")
