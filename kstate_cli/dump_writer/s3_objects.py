"""List, read, create and remove the objects below a prefix of a bucket. Paths are relative to the prefix.

boto3 finds credentials, endpoint and region as every AWS tool does: in the environment, in files of the user, by the
role of the host. None of them is ever an argument of a command. Messages repeat only the error code of a store, because
its text may contain secrets. Raises as :func:`asking`.

Two clients exist for one bucket: boto3 writes dumps, and pyarrow reads them. pyarrow has no conditional request
(``If-None-Match: *``), which decides between two writers of one manifest, and no list of unfinished uploads. boto3
cannot replace pyarrow: Parquet files are read in native threads, also from ``gs://``, ``abfss://`` and ``hdfs://``.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

from kstate_cli.deadline import contact
from kstate_cli.errors import KstateError, Refused, RunFailed, UsageError
from kstate_cli.redaction import shown_uri
from kstate_cli.texts import printable

_MARK: Final = "kstate-run"
"""Whose an object is that was to be made by one run alone."""
_PART_BYTES: Final = 16 << 20
_PARTS_OF_A_SIZE: Final = 1000
"""After so many parts they are twice as large: an upload has 10,000 at most."""
_CONFLICTS: Final = 5
_CONFLICT_SECONDS: Final = 0.5
_READS: Final = 3
_CONFLICT, _TAKEN, _UNKNOWN, _SERVERS = 409, 412, 501, 500


class NotAnsweredError(Exception):
    """An object was sent, and whether it came to be, or will, nobody can say. Says why."""


@dataclass(frozen=True, slots=True)
class Listed:
    """An object, or an upload that is not one yet."""

    path: str
    size: int
    age: float
    """Seconds since it was written, by the clock of the store, which has written both times; 0 where it says none."""
    upload: str = ""
    """Its id, of an upload."""


class Objects:
    """Those of one dump."""

    def __init__(self, place: S3Place) -> None:
        self.place = place
        self._client = client_of(place)

    def below(self, folder: str = "") -> list[Listed]:
        """All objects whose paths begin with ``folder``: nothing, or something with a slash at its end."""
        return [
            self._listed(one["Key"], one["Size"], one["LastModified"], page)
            for page in self._pages("list_objects_v2", Prefix=self.place.prefix + folder)
            for one in page.get("Contents", ())
        ]

    def root(self) -> tuple[list[Listed], list[str]]:
        """What lies in the root of the dump: objects, and the names of what would be folders, without their slash.

        The object that a console makes for an empty folder is left out: it has no name of its own.
        """
        objects: list[Listed] = []
        folders: list[str] = []
        for page in self._pages("list_objects_v2", Prefix=self.place.prefix, Delimiter="/"):
            objects += [
                self._listed(one["Key"], one["Size"], one["LastModified"], page) for one in page.get("Contents", ())
            ]
            folders += [self._relative(one["Prefix"]).rstrip("/") for one in page.get("CommonPrefixes", ())]
        return [one for one in objects if one.path], folders

    def read(self, path: str) -> bytes | None:
        """All of an object; None where there is none."""
        from botocore.exceptions import BotoCoreError, ClientError

        for left in reversed(range(_READS)):
            try:
                answer = self._client.get_object(**self._at(path))
                return bytes(answer["Body"].read())
            except ClientError as error:
                if is_missing(error):
                    return None
                raise meaning(self.place, error) from None
            except BotoCoreError as error:
                if not left:  # what comes after the first byte boto3 does not ask for again
                    raise meaning(self.place, error) from None
        raise AssertionError

    def create(self, path: str, content: bytes, run: str) -> bool:
        """Makes an object, if none has this name: one request that the store decides. False where it was too late.

        Raises NotAnsweredError where the store may have made it, or may still; Refused where it knows no such requests.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        for _ in range(_CONFLICTS):
            try:
                self._client.put_object(**self._at(path), Body=content, IfNoneMatch="*", Metadata={_MARK: run})
                return True
            except ClientError as error:
                status = status_of(error)
                if status == _TAKEN:
                    # boto3 sends again what was not answered: it may be ours.
                    return self._is_of(path, run)
                if status == _CONFLICT:
                    time.sleep(_CONFLICT_SECONDS)  # another request for the name is under way
                    continue
                if status == _UNKNOWN or code_of(error) == "NotImplemented":
                    raise self.without_conditions(f"the store answers {code_of(error)}") from None
                if status < _SERVERS and not error.response["ResponseMetadata"].get("RetryAttempts"):
                    raise meaning(self.place, error) from None
                self._unless_made(path, run, error)
                return True
            except BotoCoreError as error:
                self._unless_made(path, run, error)
                return True
        raise RunFailed(
            f"{self.place.uri}: the store is busy with other requests for {path}", hint="run the command again"
        )

    def without_conditions(self, how: str) -> Refused:
        """A store on which two writers could take each other's manifest."""
        return Refused(
            f"{self.place.uri}: the store does not know If-None-Match ({how}): no manifest could be made by one alone",
            hint=f"take a store with conditional writes, or dump to a folder and copy it, manifests last: {HOW_TO}",
        )

    def put(self, path: str, content: bytes) -> None:
        """Makes an object. Its name is nobody else's."""
        with asking(self.place):
            self._client.put_object(**self._at(path), Body=content)

    def remove(self, path: str) -> None:
        """It is gone, or was."""
        with asking(self.place):
            self._client.delete_object(**self._at(path))

    def size_of(self, path: str) -> int | None:
        """In bytes; None where there is none."""
        head = self._head(path)
        return None if head is None else int(head["ContentLength"])

    # --- uploads in parts -------------------------------------------------------------------------------------------

    def begin_upload(self, path: str) -> str:
        """The id of an upload: what is sent of it is no object, and seen by nobody, until it is complete."""
        with asking(self.place):
            return str(self._client.create_multipart_upload(**self._at(path))["UploadId"])

    def upload_part(self, path: str, upload: str, number: int, content: bytes) -> str:
        """Sends one part, the first is 1. What the store calls it."""
        with asking(self.place):
            answer = self._client.upload_part(**self._at(path), UploadId=upload, PartNumber=number, Body=content)
        return str(answer["ETag"])

    def complete_upload(self, path: str, upload: str, tags: list[str], size: int) -> None:
        """From now on it is an object, of ``size`` bytes."""
        from botocore.exceptions import ClientError

        parts = [{"PartNumber": number, "ETag": tag} for number, tag in enumerate(tags, 1)]
        with asking(self.place):
            try:
                self._client.complete_multipart_upload(
                    **self._at(path), UploadId=upload, MultipartUpload={"Parts": parts}
                )
            except ClientError as error:
                # boto3 sends again what was not answered: by then it may be done.
                if code_of(error) != "NoSuchUpload" or self.size_of(path) != size:
                    raise

    def abort_upload(self, path: str, upload: str) -> None:
        """Its parts are gone. One that is complete, or was aborted, is none."""
        from botocore.exceptions import ClientError

        with asking(self.place):
            try:
                self._client.abort_multipart_upload(**self._at(path), UploadId=upload)
            except ClientError as error:
                if code_of(error) != "NoSuchUpload":
                    raise

    def uploads(self) -> list[Listed]:
        """Uploads that are not complete; an age is that since they began."""
        return [
            self._listed(one["Key"], 0, one["Initiated"], page, one["UploadId"])
            for page in self._pages("list_multipart_uploads", Prefix=self.place.prefix)
            for one in page.get("Uploads", ())
        ]

    def idle_seconds(self, upload: Listed) -> float:
        """How long ago the last part of an upload came, or it began."""
        pages = self._pages("list_parts", Key=self.place.prefix + upload.path, UploadId=upload.upload)
        ages = [_age(one["LastModified"], page) for page in pages for one in page.get("Parts", ())]
        return min([upload.age, *ages])

    # --- how it is asked --------------------------------------------------------------------------------------------

    def _pages(self, operation: str, **more: Any) -> Iterator[Mapping[str, Any]]:
        with asking(self.place):
            yield from self._client.get_paginator(operation).paginate(Bucket=self.place.bucket, **more)

    def _at(self, path: str) -> dict[str, str]:
        return {"Bucket": self.place.bucket, "Key": self.place.prefix + path}

    def _relative(self, key: str) -> str:
        return key[len(self.place.prefix) :]

    def _listed(self, key: str, size: int, since: datetime, page: Mapping[str, Any], upload: str = "") -> Listed:
        return Listed(self._relative(key), size, _age(since, page), upload)

    def _head(self, path: str) -> Mapping[str, Any] | None:
        from botocore.exceptions import ClientError

        with asking(self.place):
            try:
                head: Mapping[str, Any] = self._client.head_object(**self._at(path))
            except ClientError as error:
                if is_missing(error):
                    return None
                raise
        return head

    def _is_of(self, path: str, run: str) -> bool:
        head = self._head(path)
        return head is not None and head.get("Metadata", {}).get(_MARK) == run

    def _unless_made(self, path: str, run: str, error: Exception) -> None:
        """Raises NotAnsweredError, unless the object is there by now and of this run."""
        with suppress(Refused, RunFailed):
            if self._is_of(path, run):
                return
        raise NotAnsweredError(meaning(self.place, error).message)


class Upload:
    """One new object, which is there once it is whole: a :class:`kstate_cli.dump_writer.writing.Sink`.

    What fits into one part is sent at once; else parts are sent as they come, and held by the store until the last.
    """

    def __init__(self, objects: Objects, path: str) -> None:
        self._objects, self._path = objects, path
        self._waiting = bytearray()
        self._size = 0
        self._upload = ""
        self._tags: list[str] = []

    def append(self, data: memoryview) -> None:
        """Sends a part when there is enough for one."""
        self._waiting += data
        self._size += len(data)
        while len(self._waiting) >= (most := _PART_BYTES << len(self._tags) // _PARTS_OF_A_SIZE):
            self._send(most)

    def finish(self) -> None:
        """The object is there."""
        if not self._upload:
            self._objects.put(self._path, bytes(self._waiting))
            return
        if self._waiting:
            self._send(len(self._waiting))
        self._objects.complete_upload(self._path, self._upload, self._tags, self._size)

    def discard(self) -> None:
        """What was sent is thrown away; where that cannot be asked for, by a later call."""
        with suppress(Exception):
            if self._upload:
                self._objects.abort_upload(self._path, self._upload)

    def _send(self, size: int) -> None:
        if not self._upload:
            self._upload = self._objects.begin_upload(self._path)
        part = bytes(memoryview(self._waiting)[:size])
        self._tags.append(self._objects.upload_part(self._path, self._upload, len(self._tags) + 1, part))
        del self._waiting[:size]


def _age(since: datetime, page: Mapping[str, Any]) -> float:
    """Seconds; both times are the store's. Raises nothing: what has no age is young."""
    try:
        told = parsedate_to_datetime(page["ResponseMetadata"]["HTTPHeaders"]["date"])
        return (told - since).total_seconds()
    except (KeyError, ValueError, TypeError):
        return 0.0


HOW_TO: Final = "docs/how-to/object-store.md"
_S3: Final = re.compile(r"(?i)s3[an]?://")
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{1,61}[A-Za-z0-9]")
_PART: Final = re.compile(r"[A-Za-z0-9_=.-]+")
"""Of a prefix: what is the same in a URI, in a key and in a path. boto3 and pyarrow must mean one place."""
_ATTEMPTS: Final = 5
_CONNECT_SECONDS: Final = 10
_READ_SECONDS: Final = 60
_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_NO_CREDENTIALS: Final = frozenset(
    {
        "CredentialRetrievalError",
        "NoAuthTokenError",
        "NoCredentialsError",
        "PartialCredentialsError",
        "SSOTokenLoadError",
        "TokenRetrievalError",
        "UnauthorizedSSOTokenError",
    }
)
_NO_PROFILE: Final = frozenset({"ProfileNotFound"})
_WRONG_REGION: Final = frozenset({"301", "AuthorizationHeaderMalformed", "PermanentRedirect"})
_BUSY: Final = (408, 429)
_MISSING: Final = 404
_DENIED: Final = (401, 403)
_FIRST_SERVER_ERROR: Final = 500


@dataclass(frozen=True, slots=True)
class S3Place:
    """A bucket, and what the keys of a dump begin with: nothing, or something that ends with a slash."""

    bucket: str
    prefix: str

    @property
    def uri(self) -> str:
        """As ``--out`` and ``--from-changelog`` have it."""
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")


def is_s3(out: str) -> bool:
    """Whether it is meant to be in a bucket; with Hadoop's names of the scheme too, as ``restore`` takes them."""
    return _S3.match(out) is not None


def place_in_bucket(out: str) -> S3Place:
    """``s3://BUCKET/PREFIX``. Raises UsageError for one that says more than that, or something else."""
    rest = _S3.sub("", out, count=1)
    if re.search(r"[@?#]", rest):
        raise UsageError(
            f"{printable(shown_uri(out))}: it says more than a bucket and a prefix",
            hint="credentials and endpoint come from the environment: AWS_PROFILE, AWS_ENDPOINT_URL, …",
        )
    bucket, _, prefix = rest.partition("/")
    parts = prefix.rstrip("/").split("/") if prefix.strip("/") else []
    if not _BUCKET.fullmatch(bucket) or not all(_PART.fullmatch(one) and one.strip(".") for one in parts):
        raise UsageError(
            f"{printable(out)} is not s3://BUCKET/PREFIX",
            hint="the prefix has letters, digits, '.', '_', '-' and '=', between single slashes",
        )
    return S3Place(bucket, "".join(f"{one}/" for one in parts))


def client_of(place: S3Place) -> Any:
    """boto3's client. Raises UsageError where it is not installed, or what the environment says is of no use."""
    try:
        from boto3.session import Session
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
    except ImportError as error:
        raise UsageError(
            f"{place.uri} cannot be written to without boto3: {error}", hint="pip install 'kstate[s3]'"
        ) from None
    contact(place.uri)
    config = Config(
        retries={"total_max_attempts": _ATTEMPTS, "mode": "standard"},
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
    )
    try:
        # A session of its own: the default one is not for several threads.
        return Session().client("s3", config=config)
    except (BotoCoreError, ValueError) as error:
        if type(error).__name__ in _NO_CREDENTIALS | _NO_PROFILE:
            raise meaning(place, error) from None
        raise UsageError(
            f"{place.uri}: the AWS settings of this user are of no use ({type(error).__name__})",
            hint="see AWS_PROFILE, AWS_REGION and AWS_ENDPOINT_URL, and the files in ~/.aws",
        ) from None


@contextmanager
def asking(place: S3Place) -> Iterator[None]:
    """What boto3 raises within becomes Refused, UsageError or RunFailed."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise meaning(place, error) from None


def code_of(error: Any) -> str:
    """The error code of an answer of the store; ``404`` and the like where it has no body."""
    return str(error.response.get("Error", {}).get("Code", ""))


def status_of(error: Any) -> int:
    """The HTTP status of an answer of the store; 0 where it is not told."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def is_missing(error: Any) -> bool:
    """Whether an answer says that there is no such object; a bucket that is missing is another matter."""
    return status_of(error) == _MISSING and code_of(error) != "NoSuchBucket"


def meaning(place: S3Place, error: Exception) -> KstateError:
    """What an exception of boto3's means, with what to do."""
    if not isinstance(getattr(error, "response", None), dict):  # some have one that is None
        return _no_answer(place, error)
    code, status = printable(code_of(error)), status_of(error)
    what = f"{place.uri}: the store answers {getattr(error, 'operation_name', 'it')} with {code or status}"
    if code == "NoSuchBucket":
        return UsageError(
            f"{place.uri}: there is no bucket {place.bucket}{_at()}",
            hint="see the name, and whose credentials these are; a bucket has to be made first",
        )
    if code in _WRONG_REGION:
        return Refused(what, hint="the bucket seems to be in another region: see AWS_REGION")
    if status in _DENIED:
        return Refused(
            f"{what}: this user may not do that",
            hint=f"see whose credentials these are (aws sts get-caller-identity), and what they need: {HOW_TO}",
        )
    if status in _BUSY or status >= _FIRST_SERVER_ERROR:
        return RunFailed(what, hint="see whether the store is well, and run the command again")
    return Refused(what, hint=f"see what the store supports, and what a dump asks of it: {HOW_TO}")


def _no_answer(place: S3Place, error: Exception) -> KstateError:
    kind = type(error).__name__
    if kind in _NO_CREDENTIALS or "Credential" in kind:
        return Refused(
            f"{place.uri}: no credentials are found ({kind})",
            hint="as for every AWS tool: AWS_PROFILE, AWS_ACCESS_KEY_ID, ~/.aws, or the role of the host",
        )
    if kind in _NO_PROFILE:
        return UsageError(f"{place.uri}: the profile that AWS_PROFILE names is not there", hint="see ~/.aws/config")
    return RunFailed(
        f"{place.uri}: the store does not answer{_at()} ({kind})",
        hint="see whether AWS_ENDPOINT_URL is right and can be reached, and run the command again",
    )


def _at() -> str:
    """Where it was asked, as far as the environment says that."""
    named = next((value for name in _ENDPOINTS if (value := os.environ.get(name))), None)
    return "" if named is None else f" at {printable(shown_uri(named))}"
