"""List, read, create and remove the objects below a prefix of a bucket. Paths are relative to the prefix.

boto3 finds credentials, endpoint and region as every AWS tool does: in the environment, in files of the user, by the
role of the host. None of them is ever an argument of a command. Messages repeat only the error code of a store, because
its text may contain secrets. Raises as :func:`s3_errors`.

Dumps and snapshots are written with it, and snapshots are read with it. Two clients exist for one dump: boto3 writes
it, and pyarrow reads it. pyarrow has no conditional request
(``If-None-Match: *``), which decides between two writers of one manifest, and no list of unfinished uploads. boto3
cannot replace pyarrow: Parquet files are read in native threads, also from ``gs://``, ``abfss://`` and ``hdfs://``.
"""

from __future__ import annotations

import io
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

from kstate_cli.deadline import contact
from kstate_cli.diagnosis import shown_uri
from kstate_cli.errors import KstateError, Refused, RunFailed, UsageError
from kstate_cli.texts import documentation, printable

_MARK: Final = "kstate-run"
"""The metadata key for the run that created an object conditionally."""
# 409 is temporary: another conditional request for the same key is under way (S3: ConditionalRequestConflict).
_CONFLICTS: Final = 5
_CONFLICT_SECONDS: Final = 0.5
_READS: Final = 3
_CONFLICT, _PRECONDITION_FAILED, _NOT_IMPLEMENTED, _SERVERS = 409, 412, 501, 500


class NotAnsweredError(Exception):
    """An object was sent without an answer: it may exist, now or later. The text is the reason."""


@dataclass(frozen=True, slots=True)
class ObjectEntry:
    """An object, or an unfinished upload."""

    path: str
    size: int
    age: float
    """Seconds since it was written; both times are of the store's clock. 0 if the store sends no time."""
    upload: str = ""
    """The id of an upload."""
    written_ms: int = 0
    """When it was written, in ms since 1970, by the clock of the store."""


class Objects:
    """The objects below one prefix."""

    def __init__(self, place: S3Place) -> None:
        self.place = place
        self._client = client_of(place)

    def below(self, folder: str = "") -> list[ObjectEntry]:
        """Return all objects whose paths begin with ``folder``, which is empty or ends with a slash."""
        return list(self.each_below(folder))

    def each_below(self, folder: str = "") -> Iterator[ObjectEntry]:
        """Yield all objects whose paths begin with ``folder``, a page of a thousand at a time."""
        for page in self._pages("list_objects_v2", Prefix=self.place.prefix + folder):
            for row in page.get("Contents", ()):
                yield self._entry(row["Key"], row["Size"], row["LastModified"], page)

    def root(self) -> tuple[list[ObjectEntry], list[str]]:
        """Return the objects in the root of the prefix, and the names of its folders, without their slash.

        The object that a console creates for an empty folder is skipped: its name is the prefix itself.
        """
        objects: list[ObjectEntry] = []
        folders: list[str] = []
        for page in self._pages("list_objects_v2", Prefix=self.place.prefix, Delimiter="/"):
            objects += [
                self._entry(row["Key"], row["Size"], row["LastModified"], page) for row in page.get("Contents", ())
            ]
            folders += [self._relative(row["Prefix"]).rstrip("/") for row in page.get("CommonPrefixes", ())]
        return [row for row in objects if row.path], folders

    def read(self, path: str, most: int | None = None) -> bytes | None:
        """Return the bytes of an object; None if it does not exist. Of more than ``most`` bytes one more is read."""
        from botocore.exceptions import BotoCoreError, ClientError

        for retries in reversed(range(_READS)):
            try:
                answer = self._client.get_object(**self._at(path))
                # The body is read here: an error in its middle belongs to this attempt, which is repeated.
                if most is None:
                    return bytes(answer["Body"].read())
                with closing(answer["Body"]) as body:
                    return bytes(body.read(most + 1))
            except ClientError as error:
                if is_missing(error):
                    return None
                raise error_of(self.place, error) from None
            except BotoCoreError as error:
                if not retries:  # boto3 does not retry once the first byte has come
                    raise error_of(self.place, error) from None
        raise AssertionError

    def open(self, path: str) -> ObjectReader | None:
        """Return an object opened for reading, a chunk at a time; None if it does not exist."""
        reader = ObjectReader(self, path)
        if not reader.begin():
            return None
        return reader

    def body_from(self, path: str, start: int, tag: str | None) -> Mapping[str, Any]:
        """Return the answer with the bytes of an object from ``start`` on, of the version that has the ETag ``tag``."""
        conditions = self._at(path)
        if tag is not None:
            # The bytes of two versions must not be mixed: another one answers 412.
            conditions |= {"Range": f"bytes={start}-", "IfMatch": tag}
        answer: Mapping[str, Any] = self._client.get_object(**conditions)
        return answer

    def clock_ms(self, path: str) -> int:
        """Return the time of the store, as the answer to a request for an object states it; 0 if it states none."""
        with s3_errors(self.place):
            answer = self._client.head_object(**self._at(path))
        try:
            return int(parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"]).timestamp() * 1000)
        except (KeyError, ValueError, TypeError):
            return 0

    def create(self, path: str, content: bytes, run: str) -> bool:
        """Create an object if its name is free, in one request that the store decides; return False if it is taken.

        Raises NotAnsweredError if the store may have created it, or may still do so; Refused if the store does not
        support such requests.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        for _ in range(_CONFLICTS):
            try:
                # The store decides in one step between two writers. A look before the write could not.
                self._client.put_object(**self._at(path), Body=content, IfNoneMatch="*", Metadata={_MARK: run})
                return True
            except ClientError as error:
                status = status_of(error)
                if status == _PRECONDITION_FAILED:
                    # boto3 repeats a request without an answer: the object may be of the first attempt.
                    return self._is_of(path, run)
                if status == _CONFLICT:
                    time.sleep(_CONFLICT_SECONDS)  # another request for the name is under way
                    continue
                if status == _NOT_IMPLEMENTED or code_of(error) == "NotImplemented":
                    raise self.without_conditions(f"the object store responded with {code_of(error)}") from None
                # A refusal of the first attempt is certain. After a retry, an earlier attempt may have created the
                # object.
                if status < _SERVERS and not error.response["ResponseMetadata"].get("RetryAttempts"):
                    raise error_of(self.place, error) from None
                self._unless_made(path, run, error)
                return True
            except BotoCoreError as error:
                self._unless_made(path, run, error)
                return True
        raise RunFailed(
            f"{self.place.uri}: the object store is busy with other requests for {path}", hint="run the command again"
        )

    def without_conditions(self, reason: str) -> Refused:
        """Return the error for a store on which two writers could overwrite each other's manifest."""
        return Refused(
            f"{self.place.uri}: the object store does not support If-None-Match ({reason}), so two writers could "
            "overwrite each other's files",
            hint=(
                "use an object store with conditional writes. Or write to a folder and copy it, manifests and "
                f"generations last: {HOW_TO}"
            ),
        )

    def write(self, path: str, content: bytes) -> None:
        """Create an object. No other writer uses its name."""
        with s3_errors(self.place):
            self._client.put_object(**self._at(path), Body=content)

    def remove(self, path: str) -> None:
        """Remove an object, if it exists."""
        with s3_errors(self.place):
            self._client.delete_object(**self._at(path))

    def size_of(self, path: str) -> int | None:
        """Return the bytes of an object; None if it does not exist."""
        head = self._head(path)
        if head is None:
            return None
        return int(head["ContentLength"])

    # --- uploads in parts -------------------------------------------------------------------------------------------

    def begin_upload(self, path: str) -> str:
        """Begin an upload, and return its id. No reader sees its parts until it is complete."""
        with s3_errors(self.place):
            return str(self._client.create_multipart_upload(**self._at(path))["UploadId"])

    def upload_part(self, path: str, upload: str, number: int, content: bytes) -> str:
        """Send one part, from number 1; return its ETag."""
        with s3_errors(self.place):
            answer = self._client.upload_part(**self._at(path), UploadId=upload, PartNumber=number, Body=content)
        return str(answer["ETag"])

    def complete_upload(self, path: str, upload: str, tags: list[str], size: int) -> None:
        """Turn the parts into an object of ``size`` bytes."""
        from botocore.exceptions import ClientError

        parts = [{"PartNumber": number, "ETag": tag} for number, tag in enumerate(tags, 1)]
        with s3_errors(self.place):
            try:
                self._client.complete_multipart_upload(
                    **self._at(path), UploadId=upload, MultipartUpload={"Parts": parts}
                )
            except ClientError as error:
                # boto3 repeats a request without an answer: the first attempt may have completed the upload.
                if code_of(error) != "NoSuchUpload" or self.size_of(path) != size:
                    raise

    def abort_upload(self, path: str, upload: str) -> None:
        """Discard the parts of an upload. An upload that is complete or aborted no longer exists."""
        from botocore.exceptions import ClientError

        with s3_errors(self.place):
            try:
                self._client.abort_multipart_upload(**self._at(path), UploadId=upload)
            except ClientError as error:
                if code_of(error) != "NoSuchUpload":
                    raise

    def uploads(self) -> list[ObjectEntry]:
        """Return the unfinished uploads; their age is that since they began."""
        return [
            self._entry(row["Key"], 0, row["Initiated"], page, row["UploadId"])
            for page in self._pages("list_multipart_uploads", Prefix=self.place.prefix)
            for row in page.get("Uploads", ())
        ]

    def idle_seconds(self, upload: ObjectEntry) -> float:
        """Return the seconds since the last part of an upload came, or since it began."""
        pages = self._pages("list_parts", Key=self.place.prefix + upload.path, UploadId=upload.upload)
        ages = [_age(row["LastModified"], page) for page in pages for row in page.get("Parts", ())]
        return min([upload.age, *ages])

    # --- how it is asked --------------------------------------------------------------------------------------------

    def _pages(self, operation: str, **more: Any) -> Iterator[Mapping[str, Any]]:
        with s3_errors(self.place):
            # Inside the block: each page is a request that may fail.
            yield from self._client.get_paginator(operation).paginate(Bucket=self.place.bucket, **more)

    def _at(self, path: str) -> dict[str, str]:
        return {"Bucket": self.place.bucket, "Key": self.place.prefix + path}

    def _relative(self, key: str) -> str:
        return key[len(self.place.prefix) :]

    def _entry(self, key: str, size: int, modified: datetime, page: Mapping[str, Any], upload: str = "") -> ObjectEntry:
        return ObjectEntry(self._relative(key), size, _age(modified, page), upload, int(modified.timestamp() * 1000))

    def _head(self, path: str) -> Mapping[str, Any] | None:
        from botocore.exceptions import ClientError

        with s3_errors(self.place):
            try:
                # HEAD has no body: the code of the answer is the HTTP status, so that a missing bucket looks like a
                # missing object.
                head: Mapping[str, Any] = self._client.head_object(**self._at(path))
            except ClientError as error:
                if is_missing(error):
                    return None
                raise
        return head

    def _is_of(self, path: str, run: str) -> bool:
        head = self._head(path)
        # Only conditional creations carry the run: a foreign object of that name does not count as ours.
        return head is not None and head.get("Metadata", {}).get(_MARK) == run

    def _unless_made(self, path: str, run: str, error: Exception) -> None:
        """Raise NotAnsweredError, unless the object exists by now and is of this run."""
        with suppress(Refused, RunFailed):
            if self._is_of(path, run):
                return
        raise NotAnsweredError(error_of(self.place, error).message)


class ObjectReader(io.RawIOBase):
    """An object opened for reading. A connection that breaks in the middle is replaced by a request for the rest."""

    def __init__(self, objects: Objects, path: str) -> None:
        self._objects, self._path = objects, path
        self._body: Any = None
        self._tag: str | None = None
        self._position = 0

    def begin(self) -> bool:
        """Request the bytes; return False if the object does not exist."""
        from botocore.exceptions import ClientError

        with s3_errors(self._objects.place):
            try:
                self._request()
            except ClientError as error:
                if is_missing(error):
                    return False
                raise
        return True

    def _request(self) -> None:
        answer = self._objects.body_from(self._path, self._position, self._tag)
        self._body, self._tag = answer["Body"], str(answer["ETag"])

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer; return the number of bytes, 0 at the end. Raise as :func:`s3_errors`."""
        from botocore.exceptions import BotoCoreError

        with s3_errors(self._objects.place):
            for retries in reversed(range(_READS)):
                try:
                    if self._body is None:
                        self._request()
                    data = self._body.read(len(buffer))
                except BotoCoreError:
                    # boto3 does not retry once the first byte has come.
                    self._body = None
                    if not retries:
                        raise
                else:
                    buffer[: len(data)] = data
                    self._position += len(data)
                    return len(data)
        raise AssertionError

    def close(self) -> None:
        """Close the connection, which has unread bytes if the reader stopped before the end."""
        if self._body is not None:
            self._body.close()
            self._body = None
        super().close()


def _age(modified: datetime, page: Mapping[str, Any]) -> float:
    """Return the age in seconds; both times are of the store's clock. Raises nothing: an unknown age is 0."""
    try:
        # The clock of the store on both sides: that of this host may be wrong by hours.
        server_time = parsedate_to_datetime(page["ResponseMetadata"]["HTTPHeaders"]["date"])
        return (server_time - modified).total_seconds()
    except (KeyError, ValueError, TypeError):
        return 0.0


HOW_TO: Final = documentation("docs/how-to/object-store.md")
_S3: Final = re.compile(r"(?i)s3[an]?://")
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{1,61}[A-Za-z0-9]")
_PART: Final = re.compile(r"[A-Za-z0-9_=.-]+")
"""Characters of a prefix that are the same in a URI, a key and a path: boto3 and pyarrow must use the same objects."""
_ATTEMPTS: Final = 5
_CONNECT_SECONDS: Final = 10
_READ_SECONDS: Final = 60
_CONNECTIONS: Final = 32
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
    """A bucket and the prefix of a dump's keys, which is empty or ends with a slash."""

    bucket: str
    prefix: str

    @property
    def uri(self) -> str:
        """The place as a user writes it."""
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")


def is_s3(out: str) -> bool:
    """Return whether ``out`` is in a bucket. Hadoop's names of the scheme (s3a, s3n) count, as in ``restore``."""
    return _S3.match(out) is not None


def place_in_bucket(out: str) -> S3Place:
    """Parse ``s3://BUCKET/PREFIX``. Raises UsageError for any other URI, such as one with a query."""
    rest = _S3.sub("", out, count=1)
    if re.search(r"[@?#]", rest):
        raise UsageError(
            f"{printable(shown_uri(out))}: the URI contains more than a bucket and a prefix",
            hint=(
                "pass only a bucket and a prefix. kstate takes credentials and endpoint from the environment "
                "(AWS_PROFILE, AWS_ENDPOINT_URL, …)"
            ),
        )
    bucket, _, prefix = rest.partition("/")
    parts = prefix.rstrip("/").split("/") if prefix.strip("/") else []
    if not _BUCKET.fullmatch(bucket) or not all(_PART.fullmatch(part) and part.strip(".") for part in parts):
        raise UsageError(
            f"{printable(out)} is not s3://BUCKET/PREFIX",
            hint="use only letters, digits, '.', '_', '-' and '=' in the prefix, between single slashes",
        )
    return S3Place(bucket, "".join(f"{part}/" for part in parts))


def client_of(place: S3Place) -> Any:
    """Return boto3's client. Raises UsageError if boto3 is not installed, or the AWS settings are invalid."""
    try:
        from boto3.session import Session
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
    except ImportError as error:
        raise UsageError(
            f"kstate cannot use {place.uri} without boto3: {error}", hint="pip install 'kstate[s3]'"
        ) from None
    contact(place.uri)
    config = Config(
        # "standard" waits longer before each attempt, and treats throttling as temporary too.
        retries={"total_max_attempts": _ATTEMPTS, "mode": "standard"},
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
        # Of botocore 10: with more workers it would open a new connection for each request.
        max_pool_connections=_CONNECTIONS,
    )
    try:
        # A separate session, because the default one is not safe for several threads.
        return Session().client("s3", config=config)
    except (BotoCoreError, ValueError) as error:
        if type(error).__name__ in _NO_CREDENTIALS | _NO_PROFILE:
            raise error_of(place, error) from None
        raise UsageError(
            f"{place.uri}: the AWS settings of this user are invalid ({type(error).__name__})",
            hint="check AWS_PROFILE, AWS_REGION, AWS_ENDPOINT_URL and the files in ~/.aws",
        ) from None


@contextmanager
def s3_errors(place: S3Place) -> Iterator[None]:
    """Turn exceptions of boto3 into Refused, UsageError or RunFailed."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise error_of(place, error) from None


def code_of(error: Any) -> str:
    """Return the error code of an answer of the store; its HTTP status if the answer has no body."""
    return str(error.response.get("Error", {}).get("Code", ""))


def status_of(error: Any) -> int:
    """Return the HTTP status of an answer of the store; 0 if it is unknown."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def is_missing(error: Any) -> bool:
    """Return whether an object does not exist; False if its bucket does not exist."""
    return status_of(error) == _MISSING and code_of(error) != "NoSuchBucket"


def error_of(place: S3Place, error: Exception) -> KstateError:
    """Return the error of kstate for an exception of boto3, with a hint."""
    if not isinstance(getattr(error, "response", None), dict):  # some have one that is None
        return _no_answer(place, error)
    code, status = printable(code_of(error)), status_of(error)
    failure = (
        f"{place.uri}: the object store responded to {getattr(error, 'operation_name', 'it')} with {code or status}"
    )
    if code == "NoSuchBucket":
        return UsageError(
            f"{place.uri}: bucket {place.bucket} does not exist{_endpoint_text()}",
            hint="check the name and the credentials. kstate does not create buckets",
        )
    if code in _WRONG_REGION:
        return Refused(failure, hint="check AWS_REGION, because the bucket seems to be in a different region")
    if status in _DENIED:
        return Refused(
            f"{failure}, because this user lacks the permission",
            hint=(
                "check which user the credentials belong to (aws sts get-caller-identity). The user needs these "
                f"permissions: {HOW_TO}"
            ),
        )
    if status in _BUSY or status >= _FIRST_SERVER_ERROR:
        return RunFailed(failure, hint="check that the object store is up, then run the command again")
    return Refused(failure, hint=f"compare the object store's features with the requirements: {HOW_TO}")


def _no_answer(place: S3Place, error: Exception) -> KstateError:
    kind = type(error).__name__
    if kind in _NO_CREDENTIALS or "Credential" in kind:
        return Refused(
            f"{place.uri}: kstate found no credentials ({kind})",
            hint="set them as for every AWS tool: AWS_PROFILE, AWS_ACCESS_KEY_ID, ~/.aws, or the role of the host",
        )
    if kind in _NO_PROFILE:
        return UsageError(f"{place.uri}: the profile named in AWS_PROFILE does not exist", hint="check ~/.aws/config")
    return RunFailed(
        f"{place.uri}: the object store does not respond{_endpoint_text()} ({kind})",
        hint="check that AWS_ENDPOINT_URL is correct and reachable, then run the command again",
    )


def _endpoint_text() -> str:
    """Return " at ENDPOINT" if the environment names an endpoint; else an empty text."""
    # The more specific variable wins, as in boto3.
    endpoint = next((value for name in _ENDPOINTS if (value := os.environ.get(name))), None)
    if endpoint is None:
        return ""
    return f" at {printable(shown_uri(endpoint))}"
