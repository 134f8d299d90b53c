"""Fuzz decoders and parsers: ``python -m tests.fuzz TARGET… | all --inputs 200000 --resume``; ``scripts/fuzz.sh`` installs atheris.

Each target runs in a process of libFuzzer. Inputs that reach new branches are kept in the folder ``kept``, findings in
``findings``, both in ``fuzz`` below ``build``, and each run adds a line to ``record.jsonl``. With ``--resume`` only inputs that the record lacks
are run. ``--seeds`` rebuilds the corpus, ``--merge`` adds the kept inputs that it needs, ``--figures`` prints the record.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from .corpus import ARCHIVE, corpus, name_of, write_corpus
from .targets import TARGETS

RECORD: Final = Path(__file__).with_name("record.jsonl")
BUILD: Final = Path(__file__).resolve().parents[2] / "build" / "fuzz"
_MOST_KEPT: Final = 4_000
"""Bytes of an input that a merge adds to the archive: larger ones show the same at a greater length."""


def main() -> int:
    """Return 1 if a run has findings."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"all, or: {', '.join(TARGETS)}")
    parser.add_argument("--inputs", type=int, default=200_000, help="inputs of each target")
    parser.add_argument("--resume", action="store_true", help="count the inputs of the record")
    parser.add_argument("--timeout", type=int, default=10, help="seconds of one input")
    parser.add_argument("--memory", type=int, default=1_500, help="MiB of the process")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no target after so many")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", type=Path, default=RECORD, help="lines are appended")
    parser.add_argument("--seeds", action="store_true", help="rebuild the corpus from the fixtures of the tests")
    parser.add_argument(
        "--merge", action="store_true", help="add inputs that reach branches which no input of the corpus reaches"
    )
    parser.add_argument("--figures", action="store_true", help="print the figures of the record, and run nothing")
    args = parser.parse_args()
    if args.figures:
        print(figures(read_record(args.record)))
        return 0
    if args.seeds:
        from .seeds import seeds, targets_without_input

        inputs = seeds()
        write_corpus(inputs)
        print(
            f"{ARCHIVE.name}: {ARCHIVE.stat().st_size:,} bytes; without a valid input: {', '.join(targets_without_input(inputs)) or 'none'}"
        )
        return 0
    targets = [*TARGETS] if args.targets == ["all"] else args.targets
    unknown = sorted({*targets} - TARGETS.keys())
    if unknown or not targets:
        parser.error(f"unknown targets: {', '.join(unknown)}" if unknown else "name targets, or all")
    if args.merge:
        with Engine() as engine:
            merge(engine, targets)
        return 0
    lines, until = [], time.monotonic() + 60 * args.minutes
    with Engine() as engine:
        for name in targets:
            inputs = args.inputs - (_inputs(read_record(args.record), name) if args.resume else 0)
            if inputs <= 0 or time.monotonic() > until:
                continue
            line = fuzz(engine, name, inputs, args)
            lines.append(line)
            with args.record.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            print(
                f"{name}: {line['inputs']:,} inputs in {line['seconds']:,} s, {line['findings']} findings", flush=True
            )
    print(figures(lines))
    return 1 if any(line["findings"] for line in lines) else 0


class Engine:
    """The process that runs libFuzzer (``engine.py``)."""

    def __enter__(self) -> Engine:
        BUILD.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "tests.fuzz.engine"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        return self

    def run(self, name: str, folder: Path, options: list[str]) -> str:
        """Run a target, and return what libFuzzer printed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        log = BUILD / f"{name}.log"
        self._process.stdin.write(json.dumps([name, str(folder), str(log), options]) + "\n")
        self._process.stdin.flush()
        if not self._process.stdout.readline():
            raise SystemExit("the process of libFuzzer has ended: is atheris installed (scripts/fuzz.sh)?")
        return log.read_text(encoding="utf-8", errors="replace")

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def fuzz(engine: Engine, name: str, inputs: int, namespace: argparse.Namespace) -> dict[str, Any]:
    """Run libFuzzer, and return the line of the record."""
    inputs_folder, seeds, findings = BUILD / "kept" / name, BUILD / "seeds" / name, BUILD / "findings" / name
    for folder in (inputs_folder, seeds, findings):
        folder.mkdir(parents=True, exist_ok=True)
    for data in corpus().get(name, ()):
        (seeds / name_of(data)).write_bytes(data)
    began, before = time.monotonic(), {*findings.glob("*")}
    limits = [f"-runs={inputs}", f"-timeout={namespace.timeout}", f"-rss_limit_mb={namespace.memory}"]
    # A run that resumes makes other inputs than the one before.
    seed = namespace.seed + len(read_record(namespace.record))
    output = engine.run(name, findings, [*limits, f"-seed={seed}", str(inputs_folder), str(seeds)])
    units = re.findall(r"stat::number_of_executed_units: *([0-9]+)", output)
    new = [path for path in findings.glob("*") if path not in before and path.suffix != ".txt"]
    if not units:
        print(output[-2_000:], file=sys.stderr)
    return {
        "target": name,
        "inputs": int(units[-1]) if units else 0,
        "seconds": round(time.monotonic() - began, 1),
        "findings": len(new),
        "names": sorted(path.name for path in new),
        "kept": len([*inputs_folder.iterdir()]),
        "revision": _revision(),
        "seed": seed,
    }


def merge(engine: Engine, targets: Iterable[str]) -> None:
    """Add to the archive what reaches new branches, and drop what reaches none (``-merge=1`` of libFuzzer)."""
    inputs = {name: [*of_target] for name, of_target in corpus().items()}
    for name in targets:
        seeds, merged = BUILD / "seeds" / name, BUILD / "merged" / name
        merged.mkdir(parents=True, exist_ok=True)
        for path in merged.iterdir():
            path.unlink()
        inputs_folder = BUILD / "kept" / name
        folders = [str(merged), str(seeds), *([str(inputs_folder)] if inputs_folder.is_dir() else [])]
        engine.run(name, BUILD, ["-set_cover_merge=1", "-timeout=60", *folders])
        own = {path.name for path in seeds.iterdir()}
        contents = [path.read_bytes() for path in sorted(merged.iterdir())]
        inputs[name] = [data for data in contents if len(data) <= _MOST_KEPT or name_of(data) in own]
        print(f"{name}: {len(inputs[name])} inputs, {sum(map(len, inputs[name])):,} bytes", flush=True)
    write_corpus(inputs)
    print(f"{ARCHIVE.name}: {ARCHIVE.stat().st_size:,} bytes")


def read_record(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a record; none without a file."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def figures(lines: list[dict[str, Any]]) -> str:
    """Return a table: inputs, seconds and findings of each target."""
    rows = []
    for name in dict.fromkeys(line["target"] for line in lines):
        own = [line for line in lines if line["target"] == name]
        rows.append((name, *(sum(line[member] for line in own) for member in ("inputs", "seconds", "findings"))))
    rows.append((f"all {len(rows)}", *(sum(row[at] for row in rows) for at in (1, 2, 3))))
    return "\n".join(
        f"{name:22} {inputs:>12,} inputs {seconds:>9,.0f} s {count:>4} findings"
        for name, inputs, seconds, count in rows
    )


def _inputs(lines: list[dict[str, Any]], name: str) -> int:
    return sum(int(line["inputs"]) for line in lines if line["target"] == name)


def _revision() -> str:
    process = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], stdout=subprocess.PIPE, check=False, cwd=Path(__file__).parent
    )
    return process.stdout.decode().strip()


if __name__ == "__main__":
    sys.exit(main())
