"""``kstate export``: write a whole store to Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kstate_cli.cli.options.engine import AUTO, engine_of, spark_settings
from kstate_cli.cli.options.shared import App, LastFlush, OutputFormat, Quiet, SpecFile, at_once, workers_option
from kstate_cli.cli.output import Format
from kstate_cli.cli.shell_completion import stores
from kstate_cli.errors import EXIT_OK, EXIT_WARNINGS

if TYPE_CHECKING:
    from kstate_cli.cli.json_lines import JsonLines
    from kstate_cli.export.store_export import Exported

_OF_THE_SUMMARY: Final = (
    *("application", "store", "kind", "as_of", "key_serde", "value_serde", "rows", "columns", "remarks"),
)
"""Members of the manifest."""


def export(
    app: App,
    store: Annotated[
        str,
        typer.Argument(metavar="STORE", help="Name of the store, in all its tasks.", autocompletion=stores),
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Folder for the export, new or empty.", readable=False)
    ],
    key_serde: Annotated[str, typer.Option("--key-serde", metavar="SERDE", help="Serde of keys.")] = "bytes",
    value_serde: Annotated[str, typer.Option("--value-serde", metavar="SERDE", help="Serde of values.")] = "bytes",
    topology: Annotated[
        str | None, typer.Option("--topology", metavar="NAME", help="The named topology, if several have the store.")
    ] = None,
    spec: SpecFile = None,
    engine: Annotated[
        str,
        typer.Option("--engine", metavar="auto|local|spark", help="auto: local processes, or Spark by spark-submit."),
    ] = AUTO,
    workers: Annotated[int, workers_option("Parts")] = 0,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="DELETES the export in DIR, after the new one is complete.")
    ] = False,
    last_flush: LastFlush = False,
    output: OutputFormat = Format.table,
    quiet: Quiet = False,
) -> int:
    """Write all rows of a store to Parquet files, decoded; docs/export.md lists the columns.

    Changes nothing in the application directory. kstate writes _manifest.json last: with it the export is complete.
    The export includes expired rows. Exit 1 if the export is written, but rows may be missing from the store.
    """
    from kstate_cli.cli.json_lines import lines_about
    from kstate_cli.cli.output import say
    from kstate_cli.cli.views.export import ExportProgress
    from kstate_cli.export.store_export import ExportRequest, export_store
    from kstate_cli.specification.draft import SpecDraft
    from kstate_cli.specification.toml_file import read_draft
    from kstate_cli.statedir.find import find_application

    request = ExportRequest(
        app=find_application(app),
        store=store,
        out=out,
        topology=topology,
        spec=SpecDraft(None, ()) if spec is None else read_draft(spec),
        spec_named=str(spec),
        key_serde=key_serde,
        value_serde=value_serde,
        engine=engine_of(engine, spark_settings(None, None)),
        workers=at_once(workers),
        overwrite=overwrite,
        last_flush=last_flush,
    )
    lines = lines_about(request.app)
    with ExportProgress(request.engine, quiet=quiet) as progress:
        exported = export_store(request, progress)
    for remark in exported.remarks:
        say(remark, quiet=quiet)
    if output is Format.json:
        _print_json(lines, exported, request.engine.reason)
    else:
        _show(exported)
    return EXIT_WARNINGS if exported.remarks and exported.warned else EXIT_OK


def _print_json(lines: JsonLines, exported: Exported, reason: str) -> None:
    """Print the manifest, with its tasks and files as lines."""
    tasks, members = exported.manifest["tasks"], {*_OF_THE_SUMMARY}
    for task in tasks:
        lines.line("task", {**{name: task[name] for name in task if name != "files"}, "files": len(task["files"])})
        for file in task["files"]:
            path = str(exported.out / file["name"])
            lines.line(
                "file", {"task": task["task"], "partition": task["partition"], "path": path, "rows": file["rows"]}
            )
    lines.summary(
        {
            **{name: value for name, value in exported.manifest.items() if name in members},
            "out": str(exported.out),
            "engine": exported.engine,
            "engine_reason": reason,
            "files": sum(len(task["files"]) for task in tasks),
            "bytes": exported.size,
        }
    )


def _show(exported: Exported) -> None:
    from kstate_cli.cli.output import table

    table(
        None,
        ("task", "store", "kind", "rows", "files"),
        [
            (task["task"], exported.manifest["store"], task["kind"], f"{task['rows']:,}", len(task["files"]))
            for task in exported.manifest["tasks"]
        ],
        right=frozenset({"rows", "files"}),
    )
