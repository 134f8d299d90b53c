"""The machinery of these tests by hand: python -m tests.interop COMMAND, in the project's folder."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from dataclasses import fields
from pathlib import Path

from . import dumps, fixture
from .broker import Broker
from .harness import App, Batch
from .jvm import Event, Jvm, Reply
from .releases import BROKER_VERSION, broker_jars, classes, home

RELEASES = ("3.9.2", "4.2.1", "4.3.1", "4.4.0")


def _parser() -> argparse.ArgumentParser:
    main = argparse.ArgumentParser(prog="python -m tests.interop", description=__doc__)
    commands = main.add_subparsers(dest="command", required=True)
    p = commands.add_parser("setup", help="fetch releases and the broker, compile the harness")
    p.add_argument("releases", nargs="*", default=RELEASES)
    commands.add_parser("broker", help="a fresh broker; prints its address, ends with the interrupt key")
    p = commands.add_parser("produce", help="create the application's input topics and send seeded records")
    _application(p)
    _batch(p)
    p = commands.add_parser("run", help="run an application until its input is consumed; prints JSON lines")
    p.add_argument("release")
    _application(p)
    p.add_argument("--state-dir", required=True)
    p.add_argument("--guarantee", choices=["alos", "eos"], default="eos")
    p.add_argument("--as-of", metavar="X.Y", help="only the stores that the topology has under this release")
    p.add_argument("--dump", metavar="FILE", help="write every store's entries")
    p.add_argument("--queries", metavar="FILE", help="ask what this file says, a JSON line each")
    p.add_argument("--answers", metavar="FILE", help="where the answers go")
    p.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="any Streams configuration")
    p.add_argument("--kill", action="store_true", help="halt the JVM at the end instead of closing")
    p.add_argument("--expect-no-restore", action="store_true", help="exit status 4 when a persistent store restored")
    p = commands.add_parser("fixture", help="a new state directory with its changelogs and dumps; needs no broker")
    p.add_argument("release")
    p.add_argument("out", type=Path, help="a folder that is missing yet")
    p.add_argument("--topology", default="kinds")
    p.add_argument("--guarantee", choices=["alos", "eos"], default="eos")
    p.add_argument("--kill", action="store_true", help="halt the JVM at the end instead of closing")
    _batch(p)
    p = commands.add_parser("compare", help="compare two files that run --dump wrote; exit status 1 when they differ")
    p.add_argument("a", type=Path)
    p.add_argument("b", type=Path)
    return main


def _application(p: argparse.ArgumentParser) -> None:
    p.add_argument("--bootstrap", required=True, metavar="HOST:PORT", help="what the command broker printed")
    p.add_argument("--app", required=True)
    p.add_argument("--topology", default="kinds")


def _batch(p: argparse.ArgumentParser) -> None:
    for field in fields(Batch):
        default = {"records": 120, "keys": 10}.get(field.name, field.default)
        p.add_argument(f"--{field.name.replace('_', '-')}", type=int, default=default)


def _call(release: str, command: Event) -> Reply:
    with Jvm(release, home() / "logs" / f"{release}.log") as jvm:
        reply = jvm.call(command)
    for event in reply.events:
        print(json.dumps(event))
    return reply


def _broker() -> None:
    with tempfile.TemporaryDirectory(prefix="kstate-broker-") as folder:
        broker = Broker(Path(folder))
        broker.start()
        try:
            print(broker.bootstrap, flush=True)
            signal.pause()
        except KeyboardInterrupt:
            pass
        finally:
            broker.stop()


def main() -> int:
    """Run one command."""
    args = vars(_parser().parse_args())
    command = args.pop("command")
    if command == "setup":
        broker_jars()
        for release in args["releases"]:
            classes(release)
    elif command == "broker":
        _broker()
    elif command == "compare":
        differences = dumps.differences(args["a"], args["b"])
        print("\n".join(map(str, differences)) or "the same")
        return 1 if differences else 0
    elif command == "fixture":
        batch = Batch(**{field.name: args.pop(field.name) for field in fields(Batch)})
        return fixture.make(args.pop("out"), **args, batch=batch)
    else:
        app = App(args["app"], args["topology"], args.get("guarantee", "eos"))
        bootstrap = {"bootstrap": args.pop("bootstrap")}
        if command == "run":
            members = {name.replace("_", "-"): value for name, value in args.items()}
            return _call(args["release"], {"do": "run", **bootstrap, "prefix": app.input, **members}).rc
        del args["app"], args["topology"]
        return _call(BROKER_VERSION, {**bootstrap, **Batch(**args).command(app.topology, app.input)}).rc
    return 0


if __name__ == "__main__":
    sys.exit(main())
