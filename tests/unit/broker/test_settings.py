"""Properties files of Kafka's own tools, in librdkafka's words: each is given to the real client."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from kstate_cli.broker.settings import client_settings, refused_by_client, translated
from kstate_cli.errors import UsageError

SECRET = "hunter2-never-printed"


def settings_of(tmp_path: Path, text: str) -> dict[str, str]:
    path = tmp_path / "client.properties"
    path.write_text(text)
    return client_settings(path)


def test_a_file_of_kafkas_own_tools(tmp_path: Path) -> None:
    settings = settings_of(
        tmp_path,
        "# of the team\n! too\n\nbootstrap.servers=elsewhere:1\nsecurity.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        'sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\\n  username="al\\"ice" '
        f'password="{SECRET}=;";\n'
        "ssl.endpoint.identification.algorithm=\nrequest.timeout.ms=5000\ngroup.id=x\nkey.deserializer=y\n",
    )
    assert settings == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": 'al"ice',
        "sasl.password": f"{SECRET}=;",
        "ssl.endpoint.identification.algorithm": "none",
        "socket.timeout.ms": "5000",
    }
    AdminClient({**settings, "bootstrap.servers": "127.0.0.1:1", "log_level": 0})


def test_stores_of_certificates() -> None:
    pem = {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca.pem"}
    assert translated(pem, "f") == {"ssl.ca.location": "/ca.pem"}
    own = {"ssl.keystore.type": "pkcs12", "ssl.keystore.location": "/k.p12", "ssl.keystore.password": SECRET}
    assert translated(own, "f") == {"ssl.keystore.location": "/k.p12", "ssl.keystore.password": SECRET}
    assert translated({"ssl.keystore.type": "PEM", "ssl.keystore.location": "/k.pem"}, "f") == {
        "ssl.certificate.location": "/k.pem",
        "ssl.key.location": "/k.pem",
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ssl.truststore.location", f"/{SECRET}.jks"),
        ("ssl.keystore.location", f"/{SECRET}.jks"),
        ("sasl.jaas.config", f'com.sun.security.auth.module.Krb5LoginModule required keyTab="{SECRET}";'),
        ("sasl.jaas.config", SECRET),
        ("sasl.login.callback.handler.class", SECRET),
        ("ssl.enabled.protocols", SECRET),
        ("interceptor.classes", SECRET),
    ],
)
def test_refuses_a_setting_without_counterpart_by_name(name: str, value: str) -> None:
    with pytest.raises(UsageError) as refusal:
        translated({name: value}, "client.properties")
    assert name in str(refusal.value)
    assert SECRET not in str(refusal.value) + str(refusal.value.hint)


@pytest.mark.parametrize(
    ("login", "name"),
    [
        (f'user="alice" password="{SECRET}"', "no equivalent of ScramLoginModule's option user"),
        (
            f'username="alice" password="{SECRET}" tokenauth="true"',
            "no equivalent of ScramLoginModule's option tokenauth",
        ),
        ('username="alice"', "has no password"),
        ("", "has no username"),
    ],
)
def test_a_setting_of_a_login_is_refused_by_its_name(login: str, name: str) -> None:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    with pytest.raises(UsageError, match=name) as refusal:
        translated({"sasl.jaas.config": f"{module} required {login};".replace(" ;", ";")}, "client.properties")
    assert SECRET not in str(refusal.value) + str(refusal.value.hint)


@pytest.mark.parametrize("settings", [{"no.such.setting": SECRET}, {"security.protocol": SECRET}])
def test_refuses_an_unknown_setting_by_name(settings: dict[str, str]) -> None:
    with pytest.raises((KafkaException, ValueError)) as raised:
        AdminClient({**settings, "log_level": 0})
    error = refused_by_client(raised.value)
    assert next(iter(settings)) in str(error)
    assert SECRET not in str(error) + str(error.hint)


def test_not_a_properties_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"line 2 of .* is not in the form name=value"):
        settings_of(tmp_path, f"a=b\n{SECRET}\n")
    with pytest.raises(UsageError, match="cannot read"):
        client_settings(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (SECRET, "must contain exactly one login module with its options"),
        ("a.Krb5LoginModule required;", "in sasl.jaas.config, not Krb5LoginModule"),
    ],
)
def test_malformed_login_is_distinguished_from_an_untranslatable_login(value: str, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        translated({"sasl.jaas.config": value}, "client.properties")
