"""Run libFuzzer on targets: ``python -m tests.fuzz.engine`` reads lines of JSON, ``[target, folder, log, [option, …]]``.

Each target runs in a child process, so that the modules are instrumented once. A line with the status of the child answers.

Exceptions that a target must not raise are collected, one input for each place in the code, so that a run continues. An input that
takes too long, or too much memory, ends the process: libFuzzer writes it to a file.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from pathlib import Path
from random import Random
from typing import Any, Final

MODULES: Final = ("kstate_cli", "tomllib")
"""Packages whose branches libFuzzer sees."""


def main() -> None:
    """Answer every line."""
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(include=[*MODULES]):
        importlib.import_module("tests.fuzz.targets")
    for line in sys.stdin:
        name, folder, log, options = json.loads(line)
        child = os.fork()
        if not child:
            try:
                descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
                os.dup2(descriptor, 1)
                os.dup2(descriptor, 2)
                fuzz(atheris, name, folder, options)
            finally:
                os._exit(70)
        print(os.waitpid(child, 0)[1], flush=True)


def fuzz(atheris: Any, name: str, folder: str, options: list[str]) -> None:
    """Fuzz a target; libFuzzer ends the process."""
    from tests.fuzz.corpus import corpus, name_of
    from tests.fuzz.mutations import MOST_BYTES, mutate
    from tests.fuzz.targets import TARGETS, run

    target, others = TARGETS[name], corpus().get(name, ())
    places: set[tuple[str, str]] = set()

    def test_input(data: bytes) -> None:
        try:
            run(target, data)
        except BaseException as error:
            place = place_of(error)
            if place not in places:
                places.add(place)
                path = Path(folder) / f"error-{name_of(data)}"
                path.write_bytes(data)
                path.with_suffix(".txt").write_text("".join(traceback.format_exception(error)[-12:]), encoding="utf-8")

    def change(data: bytes, most: int, seed: int) -> bytes:
        generator = Random(seed)
        if generator.random() < 0.5:
            return bytes(atheris.Mutate(data, most))
        return mutate(data, generator, target.shape, others)[:most]

    fixed = [f"-artifact_prefix={folder}/", f"-max_len={MOST_BYTES}", "-print_final_stats=1"]
    atheris.Setup([sys.argv[0], *fixed, *options], test_input, custom_mutator=change)
    atheris.Fuzz()


def place_of(error: BaseException) -> tuple[str, str]:
    """Return the kind of an error and the line that raised it: two inputs of one defect are one finding."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "kstate_cli" in frame.filename] or frames
    # A property fails in the table of targets, always in one place.
    text = str(error)[:14] if isinstance(error, AssertionError) else ""
    return f"{type(error).__name__} {text}", f"{own[-1].filename}:{own[-1].lineno}"


if __name__ == "__main__":
    main()
