"""What is inferred from directories of real releases, against what their topologies are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kstate_cli.errors import Refused
from kstate_cli.specification.combine import merge, resolve_spec
from kstate_cli.specification.draft import Spec, complete
from kstate_cli.specification.infer import Inference, infer
from kstate_cli.specification.toml_file import parse_draft, to_toml
from kstate_cli.specification.topology import parse_topology, read_topology
from kstate_cli.statedir.model import Application
from kstate_cli.statedir.scan import read_application
from tests.golden import index, unpack
from tests.unit.specification import truth

from .support import kstate, tree_hash

pytestmark = pytest.mark.rotating(6)

Read = Callable[[str], Application]
TOPOLOGIES = Path(truth.__file__).parent / "topologies"
KINDS = sorted(name for name, about in index().items() if about["topology"] == "kinds" and "killed" not in name)
# What the bytes of a healthy directory cannot tell: the store of unmatched records has no rows here.
CANNOT_TELL = {
    ("global-table", "source"),
    ("join-left-shared-join-store", "kind"),
    ("versioned", "retention_ms"),
    ("grace-table", "retention_ms"),
}


def missing(inference: Inference) -> set[tuple[str, str]]:
    drafts = [store.filled(inference.draft.application) for store in inference.draft.stores]
    return {(entry.store, entry.field) for draft in drafts for entry in draft.missing()}


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Read:
    applications: dict[str, Application] = {}

    def application(name: str) -> Application:
        if name not in applications:
            applications[name] = read_application(unpack(name, tmp_path_factory.mktemp("golden")))
        return applications[name]

    return application


def fill_in(text: str) -> str:
    """The printed file as its reader would complete it: likely answers taken, 20 minutes of history written in."""
    lines = []
    for line in text.splitlines():
        if "# to fill in" in line:
            line = line.removeprefix("# ").replace("retention_ms = ...", f"retention_ms = {20 * truth.MINUTES}")
        lines.append(line)
    return "\n".join(lines)


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", KINDS)
def test_kinds(name: str, read: Read) -> None:
    app = read(name)
    inference = infer(app)
    release = index()[name]["runs"][0]["release"]
    expected = truth.kinds(app.app_id, f"{app.app_id}-in", release)
    unknown = {("kv-memory", "kind")} if "upgrade-from" in name else set()
    names = {s.name for s in expected.stores}
    assert missing(inference) == {entry for entry in CANNOT_TELL if entry[0] in names} | unknown
    assert [note.partition(":")[0] for note in inference.notes] == ["kv-nolog"]
    filled = complete(parse_draft(fill_in(to_toml(inference.draft, notes=inference.notes))), file_name="kstate.toml")
    inferred = truth.by_name(filled)
    assert inferred.pop("kv-memory", None) is None or unknown
    assert inferred == truth.by_name(expected)


def test_demo(read: Read) -> None:
    app = read("4.3.1-demo-eos")
    inference = infer(app)
    assert missing(inference) == {("customers", "source")}
    filled = complete(parse_draft(fill_in(to_toml(inference.draft))), file_name="kstate.toml")
    assert truth.by_name(filled) == truth.by_name(truth.demo("orders", "shop"))


def test_headers(read: Read) -> None:
    app = read("4.3.1-headers-eos")
    inference = infer(app)
    assert not missing(inference) and not inference.notes
    assert truth.by_name(resolve_spec(app)) == truth.by_name(truth.headers(app.app_id, f"{app.app_id}-in"))


def test_named_topology(read: Read) -> None:
    app = read("3.9.2-sparse-named-eos")
    draft = infer(app).draft.store("kv-written")
    assert draft is not None
    store = draft.filled(app.app_id).spec()
    assert (store.topology, store.changelog) == ("orders", f"{app.app_id}-orders-kv-written-changelog")
    text = read_topology(TOPOLOGIES / "3.9.2-named.txt")
    assert text.of("kv-written").topology == "orders"
    spec = resolve_spec(app, topology=text, only={"kv-written"})
    assert spec.store("kv-written") == store
    # Where the directory says nothing, the topology's name makes the changelog's.
    alone = parse_draft(
        f'format = 1\napplication = "{app.app_id}"\n[stores.kv-written]\nkind = "timestamped-key-value"'
    )
    assert resolve_spec(None, alone, text, only={"kv-written"}).store("kv-written").changelog == store.changelog


@pytest.mark.parametrize("name", ["4.3.1-sparse-eos", "4.2.1-sparse-eos", "4.3.1-kinds-eos-killed-open"])
def test_nothing_is_guessed_about_stores_without_rows(name: str, read: Read) -> None:
    app = read(name)
    results = infer(app).draft
    for task in app.tasks:
        for store in task.stores:
            if all(s.empty for t in app.tasks for s in t.stores if s.name == store.name):
                draft = results.store(store.name)
                assert draft.kind is None and "kind" in {entry.field for entry in draft.filled(app.app_id).missing()}
    with pytest.raises(Refused) as refusal:
        resolve_spec(app)
    assert 'kind = "timestamped-key-value"' in refusal.value.advice


def test_topology_adds_stores_in_memory(read: Read) -> None:
    app = read("4.3.1-kinds-eos")
    text = read_topology(TOPOLOGIES / "4.3.1-kinds.txt")
    # The texts were made with the prefix "in"; the directory's topics have the application's.
    described = text.draft().store("kv-memory")
    assert described.subtopology == 0
    with pytest.raises(Refused, match='store global-table: Topology#describe has changelog = "in-global"'):
        merge(app, None, text)
    own = (TOPOLOGIES / "4.3.1-kinds.txt").read_text().replace("in-global", f"{app.app_id}-in-global")
    merged = merge(app, None, parse_topology(own))
    memory = merged.store("kv-memory")
    assert memory.missing()[0].question.answers == ("in-memory",)
    assert memory.filled(app.app_id).changelog == f"{app.app_id}-kv-memory-changelog"
    assert resolve_spec(app, None, parse_topology(own), only={"count"}).store("kv-memory") is None


def test_ls_spec_prints_toml_and_changes_nothing(tmp_path: Path) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    before = tree_hash(tmp_path)
    result = kstate("ls", app, "--spec", status=1)
    assert tree_hash(tmp_path) == before
    assert "source of customers: the files do not show whether " in result.err
    assert '# source = "table"  # to fill in' in result.out
    draft = parse_draft(result.out)
    assert draft.application == "orders" and len(draft.stores) == 4
    quiet = kstate("ls", app, "--spec", "-q", status=1)
    assert quiet.out == result.out and quiet.err == ""
    assert "--spec prints TOML" in kstate("ls", app, "--spec", "-o", "json", status=2).err


def test_ls_spec_of_a_directory_that_tells_all_is_exit_0(tmp_path: Path) -> None:
    result = kstate("ls", unpack("4.3.1-headers-eos", tmp_path), "--spec", status=0)
    assert result.err == "" and "to fill in" not in result.out.partition("\n")[2]
    assert isinstance(complete(parse_draft(result.out), file_name="x"), Spec)
