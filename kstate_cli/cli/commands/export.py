"""``kstate export``: write a whole store to Parquet."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kstate_cli import option
from kstate_cli.cli.ending import warnings_code
from kstate_cli.cli.help_examples import Example
from kstate_cli.cli.options.shared import (
    AUTO,
    App,
    LastFlush,
    OutputFormat,
    Quiet,
    SpecFile,
    at_once,
    draft_of,
    engine_of,
    spark_settings,
    workers_option,
)
from kstate_cli.cli.output import Format, output_of, table
from kstate_cli.cli.shell_completion import stores
from kstate_cli.texts import plural, size_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kstate_cli.cli.lines.stores import ExportLine
    from kstate_cli.cli.output import Output
    from kstate_cli.export.store_export import Exported

HELP_EXAMPLES: Final = {
    "export": (
        Example("Export a whole store to Parquet", "export /data/app count --out /backup/count"),
        Example(
            "Decode the values as integers",
            "export /data/app count --out out --value-serde long",
        ),
    ),
}


def export(
    app: App,
    store: Annotated[
        str,
        typer.Argument(
            metavar="STORE",
            help="Name of the store to export. kstate exports the store's rows from all tasks.",
            autocompletion=stores,
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            option.OUT,
            metavar="DIR",
            help="Write to this directory. It must be empty or must not exist yet.",
            readable=False,
        ),
    ],
    key_serde: Annotated[
        str, typer.Option(option.KEY_SERDE, metavar="SERDE", help="Decode keys with this serde.")
    ] = "bytes",
    value_serde: Annotated[
        str, typer.Option(option.VALUE_SERDE, metavar="SERDE", help="Decode values with this serde.")
    ] = "bytes",
    topology: Annotated[
        str | None,
        typer.Option(
            option.TOPOLOGY, metavar="NAME", help="Select a named topology if more than one contains this store."
        ),
    ] = None,
    spec: SpecFile = None,
    engine: Annotated[
        str,
        typer.Option(
            option.ENGINE,
            metavar="auto|local|spark",
            help="Select the engine. By default, kstate uses Spark only if spark-submit started kstate.",
        ),
    ] = AUTO,
    workers: Annotated[int, workers_option("Export N parts")] = 0,
    overwrite: Annotated[
        bool, typer.Option(option.OVERWRITE, help="DELETES the old export in DIR after the new one is complete.")
    ] = False,
    last_flush: LastFlush = False,
    output: OutputFormat = Format.table,
    quiet: Quiet = False,
) -> int:
    """Write all rows of a store to Parquet files, with decoded keys and values.

    kstate does not change the application directory. The export includes expired rows. kstate writes _manifest.json
    last, so the export is complete once this file exists. docs/export.md describes the columns. The exit code is 1 if
    rows may be missing from the store.
    """
    from kstate_cli.cli.views.export import ExportProgress
    from kstate_cli.export.store_export import ExportRequest, export_store
    from kstate_cli.specification.draft import SpecDraft
    from kstate_cli.statedir.find import find_application

    request = ExportRequest(
        app=find_application(app),
        store=store,
        out=out,
        topology=topology,
        spec=draft_of(spec) or SpecDraft(None, ()),
        # The file is passed by name too, so that errors can name it.
        spec_named=str(spec),
        key_serde=key_serde,
        value_serde=value_serde,
        engine=engine_of(engine, spark_settings(None, None)),
        workers=at_once(workers),
        overwrite=overwrite,
        last_flush=last_flush,
    )
    results: Output[ExportLine] = output_of(output, request.app, quiet=quiet)
    # Shown for Spark too, whose executors report through the driver.
    with ExportProgress(request.engine, quiet=quiet) as progress:
        exported = export_store(request, progress)
    for remark in exported.remarks:
        # Remarks are printed for every output format, since they are about the files that were written.
        results.say(remark)
    results.show(_lines(exported, request.engine.reason), partial(_show, exported, quiet=quiet))
    sys.stdout.flush()
    rows = plural(exported.manifest["rows"], "row")
    files = plural(sum(len(task["files"]) for task in exported.manifest["tasks"]), "file")
    results.remark(f"{rows} in {files}, {size_text(exported.size)}: {exported.out}")
    return warnings_code(exported.remarks and exported.warned)


def _lines(exported: Exported, reason: str) -> Iterator[ExportLine]:
    """Yield the manifest, with its tasks and files as lines."""
    manifest = exported.manifest
    tasks = manifest["tasks"]
    for task in tasks:
        yield {
            "type": "task",
            "task": task["task"],
            "partition": task["partition"],
            "kind": task["kind"],
            "rows": task["rows"],
            "position": task["position"],
            "files": len(task["files"]),
        }
        for file in task["files"]:
            yield {
                "type": "file",
                "task": task["task"],
                "partition": task["partition"],
                "path": str(exported.out / file["name"]),
                "rows": file["rows"],
            }
    yield {
        "type": "summary",
        "application": manifest["application"],
        "store": manifest["store"],
        "kind": manifest["kind"],
        "as_of": manifest["as_of"],
        "key_serde": manifest["key_serde"],
        "value_serde": manifest["value_serde"],
        "rows": manifest["rows"],
        "columns": manifest["columns"],
        "remarks": manifest["remarks"],
        "out": str(exported.out),
        "engine": exported.engine,
        "engine_reason": reason,
        "files": sum(len(task["files"]) for task in tasks),
        "bytes": exported.size,
    }


def _show(exported: Exported, *, quiet: bool) -> None:
    # The table reports only what has succeeded.
    if quiet:
        return
    table(
        None,
        ("task", "store", "kind", "rows", "files"),
        [
            (task["task"], exported.manifest["store"], task["kind"], f"{task['rows']:,}", len(task["files"]))
            for task in exported.manifest["tasks"]
        ],
        right=frozenset({"rows", "files"}),
    )
