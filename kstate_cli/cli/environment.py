"""Which options have an environment variable: those that say how kstate works, not what is done or that it may be.

A variable is set once, somewhere else, for all that comes after, and who types a command does not see it. It may name a
file, a broker, a number of processes, the form of the output. It may not confirm, permit, vouch, choose what a command
touches, or make it do something else or nothing: ``KSTATE_VERSION=1 kstate migrate …`` must migrate.

``tests/unit/cli/test_environment.py`` has every option of every command on one side or the other.
"""

from __future__ import annotations

from typing import Any, Final

SETTINGS: Final = frozenset(
    {
        "bootstrap-server",
        "conf",
        "delete-retention",
        "engine",
        "kafka-settings",
        "key-serde",
        "master",
        "max-age",
        "memory",
        "metrics-file",
        "on-state-change",
        "output",
        "reason",
        "spec",
        "staging",
        "topology",
        "value-serde",
        "verify",
        "wait",
        "workers",
    }
)
"""Long names of options with a value, whatever command has them. An option that is not listed has no variable."""
FLAGS: Final = frozenset({"each-sst", "explain", "quiet"})
"""The few flags that are settings."""


def name_of(option: Any) -> str:
    """The long name of an option of Click's: the first that it has."""
    return next(str(name)[2:] for name in (*option.opts, *option.secondary_opts) if name.startswith("--"))


def give_variables(command: Any, prefix: str) -> None:
    """Gives the settings of a command their variables: ``KSTATE_MIGRATE_WAIT``, ``KSTATE_QUERY_KEY_OUTPUT``."""
    for option in command.params:
        if option.param_type_name == "option" and name_of(option) in (FLAGS if option.is_flag else SETTINGS):
            option.envvar = f"{prefix}_{option.name}".upper()
