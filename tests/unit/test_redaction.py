"""Whatever the URI, and wherever a secret is in it: no text of ours has it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from pyarrow.fs import FileSystem

import kstate_cli
from kstate_cli.diagnosis import kept_uri, leads_there, redacted, shown_uri
from kstate_cli.dump_reader.location import uri_text
from tests import syntax

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
# What S3 gives out: base64, slashes and all. The mark at its begin keeps it from being a part of anything else.
secrets = st.text(ALPHABET + "+/=%._~-", min_size=4, max_size=30).map(lambda text: f"Q7z{text}")
users = st.text(ALPHABET, min_size=1, max_size=12)
hosts = st.from_regex(r"[a-p][a-p0-9.-]{0,12}(:[0-9]{1,5})?", fullmatch=True)
paths = st.lists(st.text("abcdefghij-_.=@", min_size=1, max_size=8), max_size=4).map("/".join)
schemes = st.sampled_from(["s3", "s3a", "gs", "abfss", "hdfs", "http", "file", "x+y"])
names = st.sampled_from(["secret_key", "sas_token", "sig", "sv", "session", "X-Amz-Credential", "apikey", "pw", "k"])


@given(schemes, users, secrets, secrets, hosts, paths, names)
def test_no_secret_comes_through(
    scheme: str, user: str, secret: str, other: str, host: str, path: str, name: str
) -> None:
    query = other.replace("/", "%2F")
    uri = f"{scheme}://{user}:{secret}@{host}/{path}?region=eu&{name}={query}&scheme=https"
    texts = [shown_uri(uri), uri_text(uri), kept_uri(uri), *redacted([uri, f"--staging={uri}"])]
    for text in texts:
        assert secret not in text
        assert "Q7z" not in text
    if "@" not in path:
        place = f"{container(scheme, user)}{host}/{path}"
        assert shown_uri(uri) == f"{scheme}://{place}"
        assert kept_uri(uri) == f"{scheme}://{place}?region=eu&scheme=https"


def container(scheme: str, user: str) -> str:
    return f"{user}@" if user and scheme == "abfss" else ""


@pytest.mark.parametrize("secret", ["", ":Q7z"])
@pytest.mark.parametrize("path", ["a/b", "a@b/c", "a:b@c", "@", "a/@"])
@pytest.mark.parametrize("authority", ["s3://{}bucket", "abfss://{}me.dfs.core.windows.net"])
def test_kept_uri_leads_to_the_same_place_or_reports_that_it_does_not(authority: str, path: str, secret: str) -> None:
    """As pyarrow finds it, which the runs of a restoration are written and removed with."""
    user = "me@" if authority.startswith("abfss") or secret else ""
    uri = f"{authority.format(user.replace('@', secret + '@'))}/{path}?region=eu-west-1"
    there = place_of(uri)
    text = kept_uri(uri)
    assert "Q7z" not in text
    assert leads_there(uri) == (place_of(text) == there)
    assert leads_there(uri) or (secret and "@" in path)


def place_of(uri: str) -> str:
    return str(FileSystem.from_uri(uri if uri.startswith("s3") else uri.partition("?")[0])[1])


BUCKETS = {"s3", "s3a", "gs"}
PORT = re.compile(r"[0-9]{1,5}[/?#]")
any_secret = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
any_secrets = st.tuples(any_secret, st.sampled_from(["", "/", "?", "#", "@", ":", "&", "://"]), any_secret).map("".join)


@given(schemes, users, any_secrets, hosts)
@example("s3", "AKIA", "sec?ret", "bucket")
@example("s3", "AKIA", "sec#ret", "bucket")
@example("s3", "AKIA", "12345/abc", "b")
@example("s3", "AKIA", "a@b/c", "b")
@example("abfss", "", "k:e?y", "account")
def test_whatever_a_password_holds(scheme: str, user: str, secret: str, host: str) -> None:
    """Nothing that means something in a URI ends it; but 8020/ behind a host is a port where there are ports."""
    assume(scheme in BUCKETS or not PORT.match(secret))
    uri = f"{scheme}://{user}:{secret}@{host}/x"
    place = f"{container(scheme, user)}{host}/x"
    assert shown_uri(uri) == kept_uri(uri) == f"{scheme}://{place}"
    assert kept_uri(f"{uri}?region=eu&sig=1") == f"{scheme}://{place}?region=eu"
    (line,) = redacted([uri])
    assert line == f"{scheme}://***@{host}/x" or line.endswith("=***")


@given(schemes, hosts, paths)
def test_uri_without_secrets_stays_unchanged(scheme: str, host: str, path: str) -> None:
    if scheme in BUCKETS:
        host = host.partition(":")[0]  # a bucket has no port: what looks like one is a password
    uri = f"{scheme}://{host}/{path}"
    assert shown_uri(uri) == kept_uri(uri) == uri
    assert kept_uri(f"{uri}?endpoint_override=minio:9000") == f"{uri}?endpoint_override=minio:9000"
    assert shown_uri(f"/{path}?x") == kept_uri(f"/{path}?x") == f"/{path}?x"
    assert redacted([path, "--to", "4.2"]) == [path, "--to", "4.2"]


@given(st.text(max_size=40))
def test_any_text_at_all(text: str) -> None:
    for function in (shown_uri, kept_uri):
        assert function(function(text)) == function(text)
    assert redacted(redacted([text])) == redacted([text])


@pytest.mark.parametrize("name", ["sasl.password", "fs.s3a.secret.key", "fs.azure.account.key.me.net", "api_key"])
def test_secret_arguments_are_redacted(name: str) -> None:
    assert redacted([f"{name}=Q7z=Q7z Q7z"]) == [f"{name}=***"]


def test_nobody_else_takes_secrets_out() -> None:
    """A pattern with an ``@`` before which everything goes, or that names passwords, is this module's."""
    source = Path(kstate_cli.__file__).parent
    calls_ = []
    for path in source.rglob("*.py"):
        for node in syntax.nodes(path):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("compile", "sub") and node.args:
                text = "".join(str(entry.value) for entry in ast.walk(node.args[0]) if isinstance(entry, ast.Constant))
                if "*@" in text or "password" in text.lower() or "secret" in text.lower():
                    calls_.append(path.name)
    assert set(calls_) <= {"diagnosis.py"}
