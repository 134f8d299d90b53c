"""Remove secrets from URIs and arguments.

Three texts for three purposes. Messages print where something is (:func:`shown_uri`). A journal records a URI that
leads there again, with credentials from elsewhere (:func:`kept_uri`). And it records the arguments of the command
(:func:`redacted`), with a placeholder for each secret.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_LEFT_OUT: Final = "***"
_MARK: Final = "://"
_QUERY: Final = re.compile(r"[?#]")
_USER: Final = re.compile(r"[^/?#:]*:")
_HOST_AND_PORT: Final = re.compile(r"[^/?#:]*:\d{1,5}(?=[/?#])")
_BUCKETS: Final = frozenset({"s3", "s3a", "s3n", "gs", "gcs"})
"""Schemes with a bucket where others have a host: a bucket has no port, so that a colon there is a user's."""
_CONTAINERS: Final = frozenset({"abfs", "abfss"})
"""Schemes with a container where others have a user: ``abfss://CONTAINER@ACCOUNT…/PATH`` is a place."""
_HARMLESS: Final = frozenset(
    {
        "allow_bucket_creation", "allow_bucket_deletion", "anonymous", "background_writes", "blob_storage_authority",
        "blob_storage_scheme", "buffer_size", "check_directory_existence_before_creation", "default_block_size",
        "default_bucket_location", "dfs_storage_authority", "dfs_storage_scheme", "endpoint_override",
        "force_virtual_addressing", "project_id", "region", "replication", "retry_limit_seconds", "scheme",
    }
)  # fmt: skip
"""Parameters of pyarrow's URIs that are none. What is not named here may be one, whatever it is called."""
_ARGUMENT: Final = re.compile(
    r"(?is)((?:pass(?:word|wd|phrase)|secret|token|credential|jaas|sas|private|(?:api|access|account|keystore)[-_.]?key)"
    r"[^=\s]*=).*"
)


def shown_uri(uri: str) -> str:
    """Where it is: without user, password and query. A path is what it is."""
    scheme, mark, rest = uri.partition(_MARK)
    return scheme + mark + _QUERY.split(_without_user(scheme, rest), maxsplit=1)[0] if mark else uri


def kept_uri(uri: str) -> str:
    """What leads there again: without user and password, and with no parameter but those known to be harmless."""
    scheme, mark, rest = uri.partition(_MARK)
    if not mark:
        return uri
    place, question, query = _without_user(scheme, rest).partition("#")[0].partition("?")
    harmless = "&".join(part for part in query.split("&") if part.partition("=")[0] in _HARMLESS)
    return scheme + mark + place + (question + harmless if harmless else "")


def leads_there(uri: str) -> bool:
    """Whether what is kept of it leads there again: not where a password might reach as far as an ``@`` in the path."""
    scheme, mark, rest = uri.partition(_MARK)
    place = _QUERY.split(rest, maxsplit=1)[0]
    authority, slash, path = place.partition("/")
    user, _, host = authority.rpartition("@")
    return not mark or _QUERY.split(_without_user(scheme, rest), maxsplit=1)[0] == (
        _container(scheme, user) + host + slash + path
    )


def redacted(arguments: Sequence[str]) -> list[str]:
    """Arguments without what may be a secret: user and password of a URI, its query, and ``…secret…=VALUE``."""
    return [_redacted(argument) for argument in arguments]


def _redacted(argument: str) -> str:
    argument = _ARGUMENT.sub(rf"\g<1>{_LEFT_OUT}", argument)
    head, mark, rest = argument.partition(_MARK)
    if not mark:
        return argument
    # An argument may hold several URIs: all between the first and the last "@" goes.
    _, at, rest = ("", "", rest) if "@" not in rest else rest.rpartition("@")
    place, *query = _QUERY.split(rest, maxsplit=1)
    return head + mark + (_LEFT_OUT + at if at else "") + place + (f"?{_LEFT_OUT}" if query else "")


def _without_user(scheme: str, rest: str) -> str:
    """What follows the scheme, without ``USER:PASSWORD@``.

    A password may hold whatever else has a meaning in a URI, where somebody has not escaped it: behind ``USER:`` all up
    to the last ``@`` counts as one. What a path with an ``@`` loses then leads nowhere, and tells nothing.
    """
    before, at, after = rest.rpartition("@")
    if at and _USER.match(before) and (scheme.lower() in _BUCKETS or not _HOST_AND_PORT.match(before)):
        return _container(scheme, before) + after
    end = len(re.split(r"[/?#]", rest, maxsplit=1)[0])
    user, _, host = rest[:end].rpartition("@")
    return _container(scheme, user) + host + rest[end:]


def _container(scheme: str, user: str) -> str:
    """What stands before a host and is part of the place; nothing where it is a user."""
    container = user.partition(":")[0]
    return f"{container}@" if container and scheme.lower() in _CONTAINERS else ""
