"""``kstate export`` from paths to the result: read, plan, write parts, give them their names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kstate_cli.errors import Refused
from kstate_cli.export.columns import schema_of
from kstate_cli.export.engines import ExportEngine, ExportWatcher, chosen, write_parts
from kstate_cli.export.out_folder import OutFolder, check_out
from kstate_cli.export.part import PartResult
from kstate_cli.export.plan import PART_BYTES, ExportPlan, plan_export
from kstate_cli.offsets.segments import position_reached, reader_remarks
from kstate_cli.rows.find import stores_of
from kstate_cli.rows.serdes import serde_for
from kstate_cli.rows.whole_stores import Steady, refuse_running
from kstate_cli.specification.combine import merge
from kstate_cli.specification.draft import SpecDraft, StoreDraft
from kstate_cli.statedir.model import Application
from kstate_cli.statedir.scan import read_application

SCHEMA: Final = 1


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """What to export, and where to."""

    app: Path
    """Absolute, of the application directory."""
    store: str
    out: Path
    topology: str | None = None
    spec: SpecDraft = field(default_factory=lambda: SpecDraft(None, ()))
    spec_named: str = "kstate.toml"
    key_serde: str = "bytes"
    value_serde: str = "bytes"
    engine: ExportEngine = ExportEngine.auto
    workers: int = 1
    overwrite: bool = False
    last_flush: bool = False


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written: the manifest, and which engine it was."""

    manifest: Mapping[str, Any]
    engine: str
    out: Path
    size: int
    """Bytes of all files."""
    remarks: tuple[str, ...] = ()
    """What whoever reads it should know of the stores."""
    warned: bool = True
    """False beside a running application, whose files are between two states all the time."""


def export_store(request: ExportRequest, watcher: ExportWatcher) -> Exported:
    """Writes a store. Raises UsageError, Refused, InUse, StoreUnreadable, SerdeError and RunFailed.

    Whatever it raises, nothing of this export is left but, after a kill, the folder ``_incomplete``.
    """
    out = check_out(request.out, request.app)
    key, value = serde_for("--key-serde", request.key_serde), serde_for("--value-serde", request.value_serde)
    app = read_application(request.app, stores={request.store}, workers=request.workers)
    refuse_running(app, last_flush=request.last_flush)
    stated = request.spec.store(request.store) or StoreDraft(name=request.store)
    stores = stores_of(app, request.store, topology=request.topology, subtopology=stated.subtopology)
    if request.spec.stores or request.spec.application is not None:
        merge(app, request.spec, named=request.spec_named)  # raises where the file is not about this directory
    steady = Steady.of(app, [store for _, store in stores])
    owner = {
        "schema_version": SCHEMA,
        "app": str(app.path),
        "store": request.store,
        "topology": request.topology,
    }
    remarks = tuple(remark for _, store in stores for remark in reader_remarks(store, running=bool(app.running)))
    with OutFolder(out, owner, overwrite=request.overwrite) as place:
        plan = plan_export(
            stores,
            place.folder,
            key_serde=request.key_serde,
            value_serde=request.value_serde,
            kind=stated.kind,
            # Ranges of a database that is written to meanwhile would not fit together.
            part_bytes=None if app.running else PART_BYTES,
        )
        if plan.shape.internal and request.value_serde != "bytes":
            raise Refused(
                f"values of a {plan.shape.name} store are Streams' own: no serde reads them",
                hint="leave out --value-serde",
            )
        engine = chosen(request.engine, plan.size, len(plan.parts), request.workers)
        results = write_parts(plan.parts, plan.rows, engine, request.workers, watcher)
        if not app.running:
            steady.check()
        manifest = _manifest(app, request, plan, results)
        manifest["columns"] = {field.name: str(field.type) for field in schema_of(plan.shape, key, value)}
        manifest["remarks"] = list(remarks)
        place.publish({one.name: one.written for one in results}, manifest)
    return Exported(manifest, engine, out, sum(one.size for one in results), remarks, warned=not app.running)


def _manifest(
    app: Application, request: ExportRequest, plan: ExportPlan, results: tuple[PartResult, ...]
) -> dict[str, Any]:
    by_name = {one.name: one for one in results}
    return {
        "schema_version": SCHEMA,
        "application": app.app_id,
        "store": request.store,
        "kind": plan.shape.name,
        "as_of": app.as_of,
        "key_serde": request.key_serde,
        "value_serde": request.value_serde,
        "rows": sum(one.rows for one in results),
        "tasks": [
            {
                "task": one.reader.task,
                "partition": one.reader.partition,
                "kind": one.reader.kind,
                "rows": sum(by_name[part.name].rows for part in one.parts),
                "position": position_reached(one.store).as_map() if one.store.position_is_readable else None,
                "files": [{"name": part.name, "rows": by_name[part.name].rows} for part in one.parts],
            }
            for one in plan.tasks
        ],
    }
