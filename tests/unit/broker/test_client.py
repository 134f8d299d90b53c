"""A client that asks a broker ends where it is left. Real librdkafka; nobody listens. With brokers: tests/interop."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

import kstate_cli
from kstate_cli.broker import client
from kstate_cli.broker.tails import ReadFrom, assigned_consumer
from kstate_cli.errors import RunFailed
from kstate_cli.formats.topic_partition import TopicPartition

CLOSED_PORT = "127.0.0.1:1"


def threads_of_clients() -> list[str]:
    """Those of librdkafka begin with rdk."""
    names = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            names.append((task / "comm").read_text().strip())
    return [name for name in names if name.startswith("rdk")]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_REFUSED_SECONDS", 0.1)


@pytest.fixture
def without_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_connect", lambda admin, errors: None)


def test_client_without_an_answer_has_no_thread_after_the_error() -> None:
    with pytest.raises(RunFailed, match="does not respond") as raised, client.admin_client(CLOSED_PORT, {}):
        pass
    assert raised.value.__traceback__ is not None, "which holds whatever was there"
    assert threads_of_clients() == []


@pytest.mark.usefixtures("without_a_connection")
@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_a_client_has_ended_however_it_is_left(error: type[BaseException] | None) -> None:
    with contextlib.ExitStack() as stack:
        if error is not None:
            stack.enter_context(pytest.raises(error))
        with client.admin_client(CLOSED_PORT, {}) as admin:
            assert threads_of_clients() != []
            admin.list_consumer_groups(request_timeout=300)
            if error is not None:
                raise error
    assert threads_of_clients() == []
    assert admin is not None, "it is still referred to"


def test_a_consumer_has_ended_however_it_is_left() -> None:
    place = ReadFrom(TopicPartition("topic", 0), 0)
    with (
        pytest.raises(ValueError, match="left"),
        assigned_consumer(CLOSED_PORT, {}, "group", [place], committed=True) as consumer,
    ):
        assert threads_of_clients() != []
        raise ValueError("left")
    assert consumer is not None
    assert threads_of_clients() == []


def test_errors_that_a_broker_sends() -> None:
    """A broker that refuses has answered: only librdkafka's own errors say that none did."""
    from confluent_kafka import KafkaError, KafkaException

    for code, text in (
        (KafkaError.UNKNOWN_TOPIC_OR_PART, "rejected the request"),
        (KafkaError._TRANSPORT, "does not respond"),
    ):
        error = client._failed("127.0.0.1:1", KafkaException(KafkaError(code)))
        assert text in error.message and error.hint


def test_a_request_for_offsets_awaits_the_coordinator() -> None:
    """librdkafka ends the process if the answer to this request is NOT_COORDINATOR, so it comes after another one."""
    places = [
        (path.name, text.index("_ask_again(await_coordinator") < text.index("_ask_again(request, soon)"))
        for path in Path(kstate_cli.__file__).parent.rglob("*.py")
        if "list_consumer_group_offsets" in (text := path.read_text(encoding="utf-8"))
    ]
    assert places == [("client.py", True)]
