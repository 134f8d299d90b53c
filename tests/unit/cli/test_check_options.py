"""Each option of ``kstate check`` works with a prediction, with a seed, or with both."""

from __future__ import annotations

from kstate_cli.cli.commands.check import _OF_SEED, _OF_START
from tests.command_line import commands

OF_BOTH = {
    "dump", "bootstrap_server", "kafka_settings", "spec", "metrics_file", "output", "quiet", "seed_to", "help", "config",
}  # fmt: skip
"""``seed_to`` selects the seed."""


def test_every_option_has_its_purpose() -> None:
    """Without an entry, kstate would silently ignore the option."""
    check = dict(commands())["check"]
    names = {parameter.name for parameter in check.params if parameter.param_type_name == "option"}
    assert names - OF_BOTH == {*_OF_SEED, *_OF_START}
    assert len({*_OF_SEED, *_OF_START}) == len(_OF_SEED) + len(_OF_START)
