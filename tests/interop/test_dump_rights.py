"""What a broker must grant for ``kstate dump``, on a broker that grants nothing else; and settings as Kafka's own tools have them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from kstate_cli.broker.settings import client_settings
from kstate_cli.broker.tails import read_tails
from kstate_cli.formats.topic_partition import TopicPartition

from .broker import Broker
from .dumping import newest
from .support import kstate

pytestmark = pytest.mark.interop

SECRET = "hunter2-never-printed"
# The listener asks who it is; only the administrator may do what is not granted.
ACL_PROPERTIES = f"""
listener.security.protocol.map=PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
sasl.enabled.mechanisms=PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
listener.name.plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
  username="admin" password="admin" user_admin="admin" user_backup="{SECRET}";
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:admin;User:ANONYMOUS
allow.everyone.if.no.acl.found=false
"""
_CLIENT = """\
security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="{user}" password="{password}";
"""
TOPIC, APP = "orders-count-changelog", "orders"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("rights") / "broker", properties=ACL_PROPERTIES) as started:
        yield started


def settings(folder: Path, user: str, password: str) -> Path:
    path = folder / f"{user}.properties"
    path.write_text(_CLIENT.format(user=user, password=password))
    return path


def grant(admin: AdminClient, kind: ResourceType, name: str, operation: AclOperation) -> None:
    binding = AclBinding(
        kind, name, ResourcePatternType.LITERAL, "User:backup", "*", operation, AclPermissionType.ALLOW
    )
    for future in admin.create_acls([binding]).values():
        future.result()


def test_documented_permissions_are_necessary_and_sufficient(broker: Broker, tmp_path: Path) -> None:
    own = client_settings(settings(tmp_path, "admin", "admin"))
    admin = AdminClient({**own, "bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic(TOPIC, 1, 1)]).values():
        future.result()
    producer = Producer({**own, "bootstrap.servers": broker.bootstrap})
    for number in range(20):
        producer.produce(TOPIC, b"v", str(number).encode())
    assert producer.flush(300) == 0
    file, out = settings(tmp_path, "backup", SECRET), tmp_path / "dump"

    def dump(*words: object) -> tuple[int, str]:
        outcome = kstate("dump", "--bootstrap-server", broker.bootstrap, "--out", out, "--engine", "local", "--workers", "1",
                      "--kafka-settings", file, *words)  # fmt: skip
        assert SECRET not in outcome.out + outcome.err
        return outcome.status, outcome.err

    status, text = dump("--topic", TOPIC)
    assert status == 2 and "the broker hides topics that this user may not describe" in text
    grant(admin, ResourceType.TOPIC, TOPIC, AclOperation.DESCRIBE)
    status, text = dump("--topic", TOPIC)
    assert status == 6 and "does not permit" in text and "DescribeConfigs" in text, text
    grant(admin, ResourceType.TOPIC, TOPIC, AclOperation.DESCRIBE_CONFIGS)
    status, text = dump("--topic", TOPIC)
    assert status == 6 and "does not permit" in text and "Read" in text, text
    # A look at the end of a log is nothing that a check fails without.
    end = {TopicPartition(TOPIC, 0): ({15}, 20)}
    assert read_tails(broker.bootstrap, client_settings(file), end, committed=True) == {}
    assert not list(out.glob("_manifest-*"))
    grant(admin, ResourceType.TOPIC, TOPIC, AclOperation.READ)
    status, text = dump("--topic", TOPIC)
    assert status == 0, text
    (tail,) = read_tails(broker.bootstrap, client_settings(file), end, committed=True).values()
    assert tail.offsets == (15, 16, 17, 18, 19) and None not in tail.times_ms
    status, text = dump("--app", APP)
    assert status == 6 and "does not permit" in text and "group" in text, text
    grant(admin, ResourceType.GROUP, APP, AclOperation.DESCRIBE)
    status, text = dump("--app", APP)
    assert status == 0, text
    assert sum(full.rows for full in newest(out).fulls) == 20
    wrong = settings(tmp_path, "nobody", SECRET)
    result = kstate("dump", "--bootstrap-server", broker.bootstrap, "--out", out, "--engine", "local", "--topic", TOPIC,
                  "--kafka-settings", wrong)  # fmt: skip
    assert result.status == 6 and SECRET not in result.out + result.err
    assert "Authentication failed" in result.err and "--kafka-settings" in result.err, result.err
