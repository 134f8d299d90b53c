"""A dump in a bucket, on a store in a process of its own: what may lie there, how a manifest becomes one, and what is never removed."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Sequence

import pytest

from kstate_cli.clock import now_ms
from kstate_cli.dump_reader.errors import WHOLE_COPY, DumpError
from kstate_cli.dump_reader.growing import name_of
from kstate_cli.dump_reader.growing_source import newest_manifest
from kstate_cli.dump_reader.location import open_location
from kstate_cli.dump_reader.model import Forgotten, Full, Grown, GrownFile, Round
from kstate_cli.dump_reader.open import read_dump
from kstate_cli.dump_writer.bucket import BucketStore
from kstate_cli.dump_writer.packing import pack
from kstate_cli.dump_writer.stores import destination, store_of
from kstate_cli.dump_writer.writing import GRACE_SECONDS, UNNAMED_SECONDS, RangeFile, new_manifest, path_of, schema
from kstate_cli.errors import InUse, KstateError, Refused, RunFailed, RunHalfway, UsageError
from kstate_cli.s3_objects import Objects, place_in_bucket
from tests.dumps.test_growing import KEY, rows_of
from tests.object_store import Fault, ObjectStore

pytestmark = pytest.mark.rotating(3)

RUN, OTHER = "0123456789ab", "ba9876543210"


def grown(generation: int, *, files: tuple[GrownFile, ...] = (), forgotten: tuple[Forgotten, ...] = ()) -> Grown:
    return Grown(generation, "read_committed", (Full(KEY, 1, 0, 99, 5, (Round(0, 99, 1, 2),), files),), {}, forgotten)


def bucket(objects: ObjectStore, prefix: str = "a/dump") -> BucketStore:
    return BucketStore(place_in_bucket(objects.uri(prefix)))


def write_range(store: BucketStore, path: str, offsets: range = range(9)) -> GrownFile:
    with RangeFile(path, schema(), group_bytes=1, new_file=store.new_file) as file:
        for batch in rows_of(offsets):
            file.add(batch)
        file_of = file.finish(path)
    assert file_of is not None
    return file_of


def paths(count: int, run: str = RUN) -> Sequence[str]:
    return [path_of(KEY, 0, 9, 1, run, f"0000000{number}") for number in range(count)]


@pytest.mark.parametrize("prefix", ["", "dump", "a/dump/"])
def test_refuses_foreign_objects_below_the_prefix(objects: ObjectStore, prefix: str) -> None:
    """Also in a bucket of its own, and where a console has made the folder. What lies beside it is nobody's business."""
    store, below = bucket(objects, prefix), f"{prefix.rstrip('/')}/".lstrip("/")
    assert store.read_newest() is None
    for key in ({below} | {f"{below}topic=t/"}) - {""}:
        objects.put(key)
    objects.put(below + new_manifest(3, RUN), b"{")
    if below:
        objects.put("another/thing")
        objects.put(f"{below[:-1]}-2/thing")
    assert store.read_newest() is None
    store.commit(grown(1), RUN, [KEY])
    store.commit(grown(2), RUN, [KEY])
    assert store.read_newest() == grown(2)
    for name in ("thesis.tex", "_manifest-1.json", "folder/thing", "topic=t", "_manifest.json", "\x1b[2J"):
        objects.put(below + name)
        with pytest.raises(Refused) as refusal:
            store.read_newest()
        assert refusal.value.hint and "\x1b" not in refusal.value.message
        objects.client.delete_object(Bucket=objects.bucket, Key=below + name)
    objects.put(below + name_of(3), b"{")
    with pytest.raises(DumpError, match="cannot read") as damaged:
        store.read_newest()
    assert damaged.value.hint == WHOLE_COPY


def test_where_a_dump_can_be() -> None:
    """What boto3 and pyarrow take for one place, and nothing that could be a secret."""
    assert destination("s3://bucket") == destination("S3A://bucket/") == "s3://bucket"
    assert destination("s3://bucket/a/b=1.c_d-e//") == "s3://bucket/a/b=1.c_d-e"
    for wrong in ("s3://", "s3://b", "s3://bucket/a//b", "s3://bucket/a b", "s3://bucket/a%20b", "s3://bucket/../b",
                  "s3://bucket/.", "s3://buck et/b", "s3://bucket/\n", "s3://key:hunter2@bucket/b", "s3://bucket/b?x=hunter2", "s3:bucket"):  # fmt: skip
        with pytest.raises(UsageError) as refusal:
            destination(wrong)
        assert "hunter2" not in str(refusal.value)


def test_written_dump_is_read_from_the_same_place(objects: ObjectStore) -> None:
    """By pyarrow, which has a client of its own: in a bucket of its own, below a prefix, and by Hadoop's name."""
    for place in (f"s3://{objects.bucket}", objects.uri("a=1/b.c_d-e/"), f"s3a://{objects.bucket}/other"):
        store = store_of(destination(place))
        assert newest_generation(place) is None
        grown_file = write_range(BucketStore(place_in_bucket(place)), paths(1)[0])
        store.commit(grown(1, files=(grown_file,)), RUN, [KEY])
        assert newest_generation(place) == 1
        dump = read_dump(place, complete=False, committed_only=False, check_digests=True)
        assert dump.partitions[KEY].rows == 9


def newest_generation(place: str) -> int | None:
    filesystem, root = open_location(place)
    grown = newest_manifest(filesystem, root, place)
    return None if grown is None else grown.generation


@pytest.mark.parametrize("there", [1, 5])
def test_a_manifest_never_takes_the_place_of_another(objects: ObjectStore, there: int) -> None:
    store = bucket(objects)
    store.commit(grown(there), OTHER, [])
    before = objects.content(f"a/dump/{name_of(there)}")
    with pytest.raises(InUse, match=f"generation {there} "):
        store.commit(grown(1), RUN, [])
    assert objects.keys("a/dump/") == [name_of(there)]
    assert objects.content(f"a/dump/{name_of(there)}") == before
    assert not store.unanswered


@pytest.mark.rotating(1)
def test_only_the_first_of_many_writers_commits_a_generation(objects: ObjectStore) -> None:
    stores = [bucket(objects) for _ in range(8)]
    files = [write_range(store, path) for store, path in zip(stores, paths(8), strict=True)]
    ended: list[tuple[str, str]] = []

    def commit(number: int) -> None:
        run = f"{number:012x}"
        try:
            stores[number].commit(grown(1, files=(files[number],)), run, [KEY])
            ended.append(("made", files[number].path))
        except InUse:
            ended.append(("lost", run))

    threads = [threading.Thread(target=commit, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    paths_of_winners = [path for outcome, path in ended if outcome == "made"]
    newest = stores[0].read_newest()
    assert newest is not None and [file.path for file in newest.fulls[0].files] == paths_of_winners
    assert len(ended) == 8


def test_lost_answer_is_resolved_by_another_request(objects: ObjectStore) -> None:
    """The store has made it, and says so only when it is asked whose it is."""
    store = bucket(objects)
    objects.behave(Fault(r"^PUT .*_manifest-", 500, carried_out=True, times=1))
    store.commit(grown(1), RUN, [])
    assert store.read_newest() == grown(1) and not store.unanswered
    objects.behave(Fault(r"^PUT .*_manifest-", 503, carried_out=True))
    store.commit(grown(2), RUN, [])
    assert store.read_newest() == grown(2) and not store.unanswered
    # As it was, but what was there is another one's.
    other = bucket(objects)
    objects.behave(Fault(r"^PUT .*_manifest-", 500, times=1))
    other.commit(grown(3), OTHER, [])
    with pytest.raises(InUse):
        store.commit(grown(3), RUN, [])


def test_files_of_an_uncertain_manifest_stay(objects: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kstate_cli.s3_objects._CONFLICT_SECONDS", 0.01)
    store = bucket(objects)
    objects.behave(Fault(r"^(PUT|HEAD) .*_manifest-", 500))
    with pytest.raises(RunHalfway, match=r"kstate does not know whether generation 1"):
        store.commit(grown(1), RUN, [])
    assert store.unanswered
    for status, code in ((403, "AccessDenied"), (400, "InvalidRequest"), (501, "NotImplemented")):
        objects.behave(Fault(r"^PUT .*_manifest-", status, code))
        with pytest.raises(Refused, match=r"AccessDenied|InvalidRequest|NotImplemented"):
            store.commit(grown(1), RUN, [])
        assert not store.unanswered, "that was an answer"
    objects.behave(Fault(r"^PUT .*_manifest-", 409, "ConditionalRequestConflict", times=2))
    store.commit(grown(1), RUN, [])
    assert store.read_newest() == grown(1)


@pytest.mark.parametrize("code", ["ignores it", "NotImplemented"])
def test_a_store_without_conditions_is_refused_before_anything_is_read(objects: ObjectStore, code: str) -> None:
    store = bucket(objects)
    if code == "ignores it":
        objects.behave(heeds_conditions=False)
    else:
        objects.behave(Fault(r"^PUT", 501, code))
    with pytest.raises(Refused, match="does not support If-None-Match"):
        store.make(RUN)
    assert objects.keys() == []
    objects.behave()
    store.make(RUN)
    assert [request.split()[0] for request in objects.requests()] == ["PUT", "PUT", "HEAD", "DELETE"]
    store.make(RUN)
    assert len(objects.requests()) == 4, "once for a call"
    assert objects.keys() == []


def test_written_objects_agree_with_the_manifest(objects: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one request, and in parts: nobody sees it before it is whole."""
    store, (small, large, failed) = bucket(objects), paths(3)
    grown_file = write_range(store, small)
    assert grown_file.size == len(objects.content(f"a/dump/{small}"))
    monkeypatch.setattr("kstate_cli.dump_writer.bucket._PART_BYTES", 1000)
    monkeypatch.setattr("kstate_cli.dump_writer.bucket._PARTS_OF_A_SIZE", 2)
    objects.behave(Fault(r"^POST .*uploadId", 500, carried_out=True, times=1))
    with RangeFile(large, schema(), group_bytes=1, new_file=store.new_file) as file:
        for batch in rows_of(range(90)):
            file.add(batch)
        assert large not in objects.keys("a/dump/") and objects.uploads() == [f"a/dump/{large}"]
        two = file.finish(large)
    assert two is not None and objects.uploads() == []
    sent = [request for request in objects.requests() if "partNumber" in request]
    assert 3 < len(sent) < two.size / 1000
    store.check_named(grown(1, files=(grown_file,)))
    store.check_named(grown(1, files=(two,)))
    parts = [write_range(store, path_of(KEY, n, n + 1, 1, OTHER, "00000000"), range(n, n + 1)) for n in range(16)]
    joined = Full(KEY, 1, 0, 99, 5, (Round(0, 99, 1, 2),), tuple(parts))
    smaller, old_paths = pack(store, joined, 2, RUN)
    assert (
        len(smaller.files) == 1 and smaller.rows == 16 and store.present([*old_paths, "topic=t/none"]) == set(old_paths)
    )
    with pytest.raises(KeyError), RangeFile(failed, schema(), group_bytes=1, new_file=store.new_file) as file:
        for batch in rows_of(range(90)):
            file.add(batch)
        raise KeyError
    assert objects.uploads() == [] and failed not in objects.keys("a/dump/")


def test_a_file_that_is_gone_is_not_named(objects: ObjectStore) -> None:
    store, (path,) = bucket(objects), paths(1)
    grown_file = write_range(store, path)
    store.check_named(grown(1, files=(grown_file,)))
    for content in (None, b"cut"):
        objects.client.delete_object(Bucket=objects.bucket, Key=f"a/dump/{path}")
        if content is not None:
            objects.put(f"a/dump/{path}", content)
        with pytest.raises(Refused, match="no longer exists"):
            store.commit(grown(1, files=(grown_file,)), RUN, [KEY])
    assert not store.unanswered and not any("_manifest" in key for key in objects.keys("a/"))
    objects.client.delete_object(Bucket=objects.bucket, Key=f"a/dump/{path}")
    with pytest.raises(DumpError, match="no longer exists"):
        store.content(path)


def test_removes_only_old_files_of_kstate_that_no_manifest_names(objects: ObjectStore) -> None:
    """By the clock of the store, whatever time it is here."""
    store, (listed_path, stray, expired, soon, _) = bucket(objects), paths(5)
    grown_file = write_range(store, listed_path)
    theirs = ["notes.parquet", f"topic=t/partition=0/x{stray[-40:]}", "topic=t/partition=0/notes.parquet",
              f"elsewhere/{stray[-40:]}", f"topic=t/partition=x/{stray.rpartition('/')[2]}", f"topic=t/{stray.rpartition('/')[2]}",
              f"x{stray}", f"topic=t/partition=0/deeper/{stray.rpartition('/')[2]}"]  # fmt: skip
    for path in (stray, expired, soon, new_manifest(1, RUN), *theirs):
        objects.put(f"a/dump/{path}", b"left")
    objects.put(f"a/dump-2/{stray}", b"of another dump")
    now = now_ms()
    forgotten = (Forgotten(expired, now - 2 * GRACE_SECONDS * 1000), Forgotten(soon, now))
    manifest = grown(1, files=(grown_file,), forgotten=forgotten)
    store.commit(manifest, RUN, [])
    before = set(objects.keys())
    assert store.sweep(manifest) == 0, "all of it is young"
    objects.behave(later_seconds=UNNAMED_SECONDS + 60)
    assert store.sweep(manifest) == 3
    assert before - set(objects.keys()) == {f"a/dump/{path}" for path in (stray, expired, new_manifest(1, RUN))}
    objects.behave(Fault("^DELETE", 403, "AccessDenied"), later_seconds=3 * GRACE_SECONDS)
    assert store.sweep(grown(1)) == 0
    objects.behave(Fault("^GET", 403, "AccessDenied"), later_seconds=3 * GRACE_SECONDS)
    assert store.sweep(grown(1)) == 0
    objects.behave()
    assert before - set(objects.keys()) == {f"a/dump/{path}" for path in (stray, expired, new_manifest(1, RUN))}


def test_old_manifests_go_but_for_the_last_few(objects: ObjectStore) -> None:
    store = bucket(objects)
    for generation in range(1, 13):
        store.commit(grown(generation), RUN, [])
    assert store.sweep(grown(12)) == 0, "they are young"
    objects.behave(later_seconds=2 * 3600)
    assert store.sweep(grown(12)) == 4
    assert objects.keys("a/dump/") == [name_of(number) for number in range(5, 13)]


def test_of_uploads_only_those_of_dead_runs(objects: ObjectStore) -> None:
    """Parts that nobody completes cost money for ever, and no list of objects shows them."""
    store, (stray,) = bucket(objects), paths(1)
    below = Objects(place_in_bucket(objects.uri("")))

    def begin(path: str) -> None:
        # moto says of all uploads that they began in 2010; when a part came, it says right.
        below.upload_part(path, below.begin_upload(path), 1, b"part")

    for path in (f"a/dump/{stray}", "theirs.parquet", f"a/dump-2/{stray}"):
        begin(path)
    assert store.sweep(grown(1)) == 0
    objects.behave(later_seconds=UNNAMED_SECONDS + 60)
    assert store.sweep(grown(1)) == 1
    assert sorted(objects.uploads()) == [f"a/dump-2/{stray}", "theirs.parquet"]
    begin(f"a/dump/{stray}")
    begin(f"a/dump/{path_of(KEY, 0, 9, 1, OTHER, '00000000')}")
    store.remove_files_of(RUN, [KEY], [])
    assert len(objects.uploads()) == 3 and f"a/dump/{stray}" not in objects.uploads()


def test_removes_only_unnamed_files_of_the_run(objects: ObjectStore) -> None:
    store, (mine, listed_path), (other,) = bucket(objects), paths(2), paths(1, OTHER)
    for path in (mine, listed_path, other):
        objects.put(f"a/dump/{path}")
    store.remove_files_of(RUN, [KEY], [listed_path])
    assert objects.keys("a/dump/") == sorted((listed_path, other))


CASES = {
    "denied": (Fault(".", 403, "AccessDenied"), Refused, "lacks the permission"),
    "no such key id": (Fault(".", 403, "InvalidAccessKeyId"), Refused, "InvalidAccessKeyId"),
    "another region": (Fault(".", 400, "AuthorizationHeaderMalformed"), Refused, "AuthorizationHeaderMalformed"),
    "out of order": (Fault(".", 503, "SlowDown"), RunFailed, "SlowDown"),
    "unknown": (Fault(".", 400, "Strange\x1b[2J"), Refused, "responds"),
}


@pytest.mark.parametrize("case", CASES)
def test_error_of_the_object_store_has_a_hint(objects: ObjectStore, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kstate_cli.s3_objects._ATTEMPTS", 1)
    fault, kind, words = CASES[case]
    store = bucket(objects)
    objects.behave(fault)
    calls = (store.read_newest, lambda: store.make(RUN), lambda: store.present(["x"]), lambda: store.content("x"),
             lambda: store.new_file("x").finish(), lambda: store.check_named(grown(1, files=(GrownFile("x", 1, "", ()),))))  # fmt: skip
    for call in calls:
        with pytest.raises(kind) as error:
            call()
        assert error.value.hint and objects.uri("a/dump") in error.value.message
        assert "\x1b" not in error.value.message and "said by a test" not in error.value.message
        assert words in error.value.message or call is calls[1]


def test_reports_a_missing_bucket_and_missing_credentials(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def message(kind: type[KstateError]) -> str:
        with pytest.raises(kind) as refusal:
            store_of(objects.uri("dump")).read_newest()
        assert "hunter2" not in str(refusal.value) and refusal.value.hint
        return f"{refusal.value.message} {refusal.value.hint}"

    objects.client.delete_bucket(Bucket=objects.bucket)
    assert f"bucket {objects.bucket} does not exist at http://127.0.0.1" in message(UsageError)
    monkeypatch.setattr("kstate_cli.s3_objects._ATTEMPTS", 1)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://admin:hunter2@127.0.0.1:9")
    assert "does not respond at http://127.0.0.1:9 (" in message(RunFailed)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "hunter2 is no url")
    assert "AWS_ENDPOINT_URL" in message(UsageError)
    monkeypatch.setenv("AWS_ENDPOINT_URL", objects.endpoint)
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert "kstate found no credentials" in message(Refused)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    assert "kstate found no credentials" in message(Refused)
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    assert "AWS_PROFILE" in message(UsageError)
    monkeypatch.setitem(sys.modules, "boto3.session", None)
    assert "pip install 'kstate[s3]'" in message(UsageError)


@pytest.mark.parametrize("behaviour", ["says nothing", "closes", "says half of it"])
def test_an_answer_that_does_not_come(objects: ObjectStore, monkeypatch: pytest.MonkeyPatch, behaviour: str) -> None:
    """Each of them is another exception of boto3's, and none of urllib3's comes through."""
    monkeypatch.setattr("kstate_cli.s3_objects._ATTEMPTS", 1)
    monkeypatch.setattr("kstate_cli.s3_objects._READ_SECONDS", 0.05)
    response = b"" if behaviour == "closes" else b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nETag: 1\r\n\r\n<x"
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connections = []
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                if behaviour == "says nothing":
                    connections.append(connection)
                    continue
                connection.recv(1 << 16)
                connection.sendall(response)
                connection.close()

        threading.Thread(target=answer, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
        store = bucket(objects)
        for call in (store.read_newest, lambda: store.content("x"), lambda: store.make(RUN), lambda: store.new_file("x").finish() if behaviour != "says half of it" else store.present(["x"])):  # fmt: skip
            with pytest.raises(RunFailed) as error:
                call()
            assert error.value.hint
        if behaviour != "says half of it":
            with pytest.raises(RunHalfway):
                store.commit(Grown(1, "read_committed", ()), RUN, [])
        assert store.sweep(grown(1)) == 0
        server.shutdown(socket.SHUT_RDWR)
