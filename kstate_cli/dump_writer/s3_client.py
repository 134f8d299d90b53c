"""A place in a bucket, the client that asks for it, and what a failure of that means for whoever has asked.

Credentials, endpoint and region are found by boto3 as by every AWS tool: environment, files of the user, role of the
host. None of them is ever an argument of a command. What a store says besides its error code is not repeated: nobody
here has looked at what others write into a message.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from kstate_cli.deadline import contact
from kstate_cli.errors import KstateError, Refused, RunFailed, UsageError
from kstate_cli.redaction import shown_uri
from kstate_cli.texts import printable

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
_SERVERS: Final = 500


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
    if status in _BUSY or status >= _SERVERS:
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
