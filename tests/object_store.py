"""A store of objects that speaks S3: moto's server, in a process of its own, with what can go wrong before it.

``python -m tests.object_store`` serves it, on a port that it prints. What stands before moto counts requests, answers
some of them with an error that was asked for, or not at all until that is taken back, says another time of day, and
does what moto does not: of two conditional requests for one name it carries out one.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote

ROOT = Path(__file__).resolve().parents[1]
ACCESS_KEY, SECRET = "AKIAKSTATETESTS00000", "hunter2-never-printed"
_CONTROL = "/_control"


@dataclass
class Fault:
    """What becomes of the requests whose ``METHOD /bucket/key?query`` matches, the first ``times`` of them."""

    match: str
    status: int = 0
    """Answered with this; 0: with what moto says."""
    code: str = "InternalError"
    carried_out: bool = False
    """Before it is answered with ``status``: the answer got lost. Or, of one that stalls, once it goes on."""
    stalls: bool = False
    """Waits until the faults are others; then it is carried out, or never was."""
    times: int = 1 << 30


@dataclass
class Conduct:
    """How the store behaves."""

    faults: list[Fault] = field(default_factory=list)
    heeds_conditions: bool = True
    later_seconds: int = 0
    """It is so much later by its clock than it was when objects were written."""
    policy: dict[str, Any] | None = None
    """What is granted: all else is denied. None: everything is granted."""
    policies: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What is granted to the user of an access key, in place of ``policy``."""

    def policy_of(self, access_key: str) -> dict[str, Any] | None:
        return self.policies.get(access_key, self.policy)


class ObjectStore:
    """A client of it, for tests. ``bucket`` is new and empty."""

    def __init__(self, endpoint: str, bucket: str) -> None:
        self.endpoint, self.bucket = endpoint, bucket
        self.behave()
        self.client.create_bucket(Bucket=bucket)

    @property
    def environment(self) -> dict[str, str]:
        """What leads there, as every AWS tool takes it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }

    @cached_property
    def client(self) -> Any:
        """boto3's, whatever the environment says."""
        from boto3.session import Session

        return Session(ACCESS_KEY, SECRET, region_name="us-east-1").client("s3", endpoint_url=self.endpoint)

    def uri(self, prefix: str) -> str:
        return f"s3://{self.bucket}/{prefix}"

    def behave(
        self,
        *faults: Fault,
        heeds_conditions: bool = True,
        later_seconds: int = 0,
        policy: dict[str, Any] | None = None,
        policies: dict[str, dict[str, Any]] | None = None,
    ) -> None:
        """From now on so; requests that were stalled go on. Nothing is counted yet."""
        self._ask(asdict(Conduct(list(faults), heeds_conditions, later_seconds, policy, policies or {})))

    def requests(self) -> list[str]:
        """``METHOD /bucket/key?query`` of each that came since."""
        lines: list[str] = self._ask(None)
        return lines

    def keys(self, prefix: str = "") -> list[str]:
        """Of all objects below it, sorted, without it."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
        return sorted(entry["Key"].removeprefix(prefix) for page in pages for entry in page.get("Contents", ()))

    def content(self, key: str) -> bytes:
        return bytes(self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read())

    def put(self, key: str, content: bytes = b"") -> None:
        self.client.put_object(Bucket=self.bucket, Key=key, Body=content)

    def uploads(self) -> list[str]:
        """Keys of uploads that are not complete."""
        return [entry["Key"] for entry in self.client.list_multipart_uploads(Bucket=self.bucket).get("Uploads", ())]

    def copied(self, prefix: str, to: Path) -> Path:
        """All of a dump, as files."""
        for key in self.keys(prefix):
            path = to / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.content(prefix + key))
        return to

    def _ask(self, conduct: Mapping[str, Any] | None) -> Any:
        body = None if conduct is None else json.dumps(conduct).encode()
        with urllib.request.urlopen(f"{self.endpoint}{_CONTROL}", body) as answer:
            return json.load(answer)


@contextmanager
def running() -> Iterator[str]:
    """The endpoint of one, as long as this is open."""
    command = [sys.executable, "-m", "tests.object_store"]
    environment = {**os.environ, "S3_UPLOAD_PART_MIN_SIZE": "1"}  # a store asks for 5 MiB, which takes its time
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        assert port, "it has not started"
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


# --- what a policy grants --------------------------------------------------------------------------------------------


def action_of(request: str) -> tuple[str, str, str | None]:
    """The action that a request asks for, its resource, and the prefix that it lists, if it says one."""
    method, _, target = request.partition(" ")
    path, _, query = target.partition("?")
    requests = parse_qs(query, keep_blank_values=True)
    bucket, _, key = unquote(path).strip("/").partition("/")
    resource = f"arn:aws:s3:::{bucket}" + (f"/{key}" if key else "")
    prefix = requests.get("prefix", [None])[0]
    if not key:
        return ("s3:ListBucketMultipartUploads" if "uploads" in requests else "s3:ListBucket"), resource, prefix
    if method in ("PUT", "POST"):
        return "s3:PutObject", resource, None
    if method == "DELETE":
        return ("s3:AbortMultipartUpload" if "uploadId" in requests else "s3:DeleteObject"), resource, None
    return ("s3:ListMultipartUploadParts" if "uploadId" in requests else "s3:GetObject"), resource, None


def is_granted(policy: Mapping[str, Any], request: str) -> bool:
    """Whether a policy of such statements as the documentation has allows a request."""
    action, resource, prefix = action_of(request)
    for entry in policy["Statement"]:
        actions = entry["Action"] if isinstance(entry["Action"], list) else [entry["Action"]]
        get = entry.get("Condition", {}).get("StringLike", {}).get("s3:prefix")
        if (
            action in actions
            and fnmatchcase(resource, entry["Resource"])
            and (get is None or (prefix is not None and fnmatchcase(prefix, get)))
        ):
            return True
    return False


# --- the process ----------------------------------------------------------------------------------------------------

_Start = Callable[[str, list[tuple[str, str]]], Any]


class _Before:
    """What stands before moto, as WSGI has it."""

    def __init__(self, moto: Callable[[dict[str, Any], Any], Iterable[bytes]]) -> None:
        self._moto = moto
        self.conduct = Conduct()
        self._requests: list[str] = []
        self._lock = threading.Lock()
        self._changed = threading.Condition()

    def __call__(self, environ: dict[str, Any], start: _Start) -> Iterable[bytes]:
        if environ["PATH_INFO"] == _CONTROL:
            return self._control(environ, start)
        query = environ.get("QUERY_STRING")
        request = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}{'?' + query if query else ''}"
        with self._changed:
            self._requests.append(request)
            conduct, fault = self.conduct, self._fault(request)
            policy = conduct.policy_of(_access_key(environ))
            if policy is not None and not is_granted(policy, request):
                fault = Fault("", 403, "AccessDenied")
            while fault is not None and fault.stalls and self.conduct is conduct:
                self._changed.wait()
        if fault is not None and fault.stalls:
            fault.status = 0 if fault.carried_out else 500
        if not conduct.heeds_conditions:
            environ.pop("HTTP_IF_NONE_MATCH", None)
        if fault is not None and fault.status and not fault.carried_out:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            return _error(fault, start)
        if policy is not None:
            start = _hiding(policy, request, start)
        answer = self._respond(environ, start if fault is None or not fault.status else _nowhere)
        if fault is not None and fault.status:
            for _ in answer:
                pass
            return _error(fault, start)
        return answer

    def _respond(self, environ: dict[str, Any], start: _Start) -> Iterable[bytes]:
        if "HTTP_IF_NONE_MATCH" not in environ:
            return self._moto(environ, start)
        with self._lock:
            return list(self._moto(environ, start))

    def _fault(self, request: str) -> Fault | None:
        for fault in self.conduct.faults:
            if fault.times and re.search(fault.match, request):
                fault.times -= 1
                return fault
        return None

    def _control(self, environ: dict[str, Any], start: _Start) -> Iterable[bytes]:
        with self._changed:
            if environ["REQUEST_METHOD"] == "POST":
                document = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
                document["faults"] = [Fault(**fault) for fault in document["faults"]]
                self.conduct = Conduct(**document)
                self._requests = []
                self._changed.notify_all()
            body = json.dumps(self._requests).encode()
        start("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
        return [body]


def _access_key(environ: Mapping[str, Any]) -> str:
    """The user who signed a request (AWS4-HMAC-SHA256 Credential=KEY/DATE/…); the signature is not checked."""
    match = re.search(r"Credential=([^/,]+)/", environ.get("HTTP_AUTHORIZATION", ""))
    return match[1] if match else ""


def _hiding(policy: Mapping[str, Any], request: str, start: _Start) -> _Start:
    """Whether an object is missing only those are told who may list the bucket, whatever the prefix."""
    bucket = request.split(" ")[1].split("/")[1].partition("?")[0]

    def started(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
        hidden = status.startswith("404") and not is_granted(policy, f"GET /{bucket}")
        return start("403 Forbidden" if hidden else status, headers, *more)

    return started


def _nowhere(status: str, headers: Sequence[tuple[str, str]], *more: Any) -> Any:
    return lambda _: None


def _error(fault: Fault, start: _Start) -> Iterable[bytes]:
    body = f'<?xml version="1.0"?><Error><Code>{fault.code}</Code><Message>said by a test</Message></Error>'.encode()
    start(f"{fault.status} Error", [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
    return [body]


def _serve() -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    before = _Before(DomainDispatcherApplication(create_backend_app))

    class Later(WSGIRequestHandler):
        def date_time_string(self, timestamp: float | None = None) -> str:
            return super().date_time_string((timestamp or time.time()) + before.conduct.later_seconds)

    server = make_server("127.0.0.1", 0, before, threaded=True, request_handler=Later)
    # It goes when whoever has started it does: then there is nothing to read any more.
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    _serve()
