"""Settings of a Kafka client: translate the properties file of Kafka's own tools to the settings of librdkafka.

Most names are the same, and the others are translated here. A setting without a counterpart in librdkafka is refused by
its name, as is one that neither client knows. A message never contains a value, because it may be a password.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from kstate_cli import option
from kstate_cli.errors import UsageError
from kstate_cli.regular_files import read_given

_BOOTSTRAP: Final = "bootstrap.servers"
_HINT: Final = "write one setting per line, such as security.protocol=SSL"
_JAAS: Final = re.compile(r"\s*([\w.$]+)\s+required((?:\s+\w+\s*=\s*(?:\"(?:[^\"\\]|\\.)*\"|[^\s;\"]+))*)\s*;\s*")
_PAIR: Final = re.compile(r"(\w+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s;\"]+))")
_LOGINS: Final = ("PlainLoginModule", "ScramLoginModule")
_LOGIN_NAMES: Final = ("username", "password")
_SET_BY_KSTATE: Final = frozenset(
    {
        "auto.offset.reset",
        "enable.auto.commit",
        "group.id",
        "group.instance.id",
        "isolation.level",
        "key.deserializer",
        "value.deserializer",
        "key.serializer",
        "value.serializer",
        "max.poll.records",
        "max.poll.interval.ms",
    }
)
"""Settings whose value is fixed here. A file that other tools use may have them, so they are ignored."""


def client_settings(path: Path | None) -> dict[str, str]:
    """Return the settings of a properties file for librdkafka. Raises UsageError, naming the line or the setting."""
    if path is None:
        return {}
    return translated(_read(path), str(path))


def _read(path: Path) -> dict[str, str]:
    """Return the settings in a properties file. Raise UsageError."""
    settings: dict[str, str] = {}
    try:
        text = read_given(path).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"kstate cannot read {path}: {error}", hint="pass a Kafka client properties file") from None
    # As in java.util.Properties, a backslash at the end of a line continues it on the next line.
    for number, line in enumerate(re.sub(r"\\\r?\n[ \t]*", "", text).splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith(("#", "!")):
            continue
        name, equals, value = stripped.partition("=")
        if not equals:
            raise UsageError(f"line {number} of {path} is not in the form name=value", hint=_HINT)
        settings[name.strip()] = value.strip()
    return settings


def translated(settings: Mapping[str, str], where: str) -> dict[str, str]:
    """Return the settings of Kafka's own client as settings of librdkafka. Raises UsageError, naming ``where``."""
    theirs: dict[str, str] = {}
    stores = {name: settings[name] for name in ("ssl.truststore.type", "ssl.keystore.type") if name in settings}
    for name, value in settings.items():
        if name in _SET_BY_KSTATE or name == _BOOTSTRAP or name in stores:
            continue
        rule = _RULES.get(name)
        if rule is not None:
            theirs |= rule(value, stores, where)
        # Refused by its name here, because the message of librdkafka would not be known to Kafka users.
        elif name.startswith(_WITHOUT):
            raise _unknown(name, where)
        else:
            theirs[name] = value
    return theirs


def _same(name: str) -> Callable[[str, Mapping[str, str], str], dict[str, str]]:
    return lambda value, _stores, _where: {name: value}


def _truststore(value: str, stores: Mapping[str, str], where: str) -> dict[str, str]:
    # JKS is Java's default, and only Java reads it.
    if stores.get("ssl.truststore.type", "JKS").upper() != "PEM":
        raise UsageError(
            f"{where}: kstate supports ssl.truststore.location only if the file contains PEM certificates",
            hint="export the certificates with keytool -exportcert -rfc and add ssl.truststore.type=PEM",
        )
    return {"ssl.ca.location": value}


def _keystore(value: str, stores: Mapping[str, str], where: str) -> dict[str, str]:
    kind = stores.get("ssl.keystore.type", "JKS").upper()
    if kind == "PEM":
        # Kafka keeps certificate and key in one PEM file, librdkafka asks for each.
        return {"ssl.certificate.location": value, "ssl.key.location": value}
    if kind == "PKCS12":
        return {"ssl.keystore.location": value}
    raise UsageError(
        f"{where}: kstate does not support keystores of type {kind} in ssl.keystore.location",
        hint="convert the keystore with keytool -importkeystore -deststoretype PKCS12 and set ssl.keystore.type=PKCS12",
    )


def _names_of_hosts(value: str, _stores: Mapping[str, str], _where: str) -> dict[str, str]:
    return {"ssl.endpoint.identification.algorithm": value.lower() or "none"}


def _jaas(value: str, _stores: Mapping[str, str], where: str) -> dict[str, str]:
    """Return the username and password in a ``sasl.jaas.config`` as settings of librdkafka. Raise UsageError."""
    match = _JAAS.fullmatch(value)
    if match is None:
        raise UsageError(
            f"{where}: sasl.jaas.config must contain exactly one login module with its options",
            hint='write it as Kafka does: MODULE required username="…" password="…";',
        )
    module = match[1].rpartition(".")[2]
    if module not in _LOGINS:
        raise UsageError(
            f"{where}: kstate supports only {' and '.join(_LOGINS)} in sasl.jaas.config, not {module}",
            hint="kstate uses librdkafka. Set librdkafka's sasl.* properties instead",
        )
    # Java (StreamTokenizer) reads quoted values with escapes by a backslash.
    options = {name: re.sub(r"\\(.)", r"\1", quoted) or plain for name, quoted, plain in _PAIR.findall(match[2])}
    unknown = sorted(options.keys() - _LOGIN_NAMES)
    if unknown:
        raise UsageError(
            f"{where}: kstate uses librdkafka, which has no equivalent of {module}'s option {unknown[0]} in "
            "sasl.jaas.config",
            hint="kstate translates only username and password. Remove this option or use a librdkafka setting instead",
        )
    missing = [name for name in _LOGIN_NAMES if name not in options]
    if missing:
        raise UsageError(
            f"{where}: sasl.jaas.config has no {missing[0]}",
            hint='add this option to the login module, for example username="…"',
        )
    return {f"sasl.{name}": options[name] for name in _LOGIN_NAMES}


_RULES: Final[Mapping[str, Callable[[str, Mapping[str, str], str], dict[str, str]]]] = {
    "ssl.truststore.location": _truststore,
    "ssl.truststore.certificates": _same("ssl.ca.pem"),
    "ssl.truststore.password": lambda _value, _stores, _where: {},  # of a PEM file that has none
    "ssl.keystore.location": _keystore,
    "ssl.keystore.certificate.chain": _same("ssl.certificate.pem"),
    "ssl.keystore.key": _same("ssl.key.pem"),
    "ssl.endpoint.identification.algorithm": _names_of_hosts,
    "ssl.cipher.suites": lambda value, _stores, _where: {"ssl.cipher.suites": value.replace(",", ":")},
    "sasl.jaas.config": _jaas,
    "request.timeout.ms": _same("socket.timeout.ms"),
    "send.buffer.bytes": _same("socket.send.buffer.bytes"),
    "receive.buffer.bytes": _same("socket.receive.buffer.bytes"),
    "max.partition.fetch.bytes": _same("max.partition.fetch.bytes"),
    "client.dns.lookup": _same("client.dns.lookup"),
}
_WITHOUT: Final = (
    "sasl.login.",
    "sasl.client.callback",
    "ssl.engine.factory",
    "ssl.keymanager.",
    "ssl.trustmanager.",
    "ssl.protocol",
    "ssl.enabled.protocols",
    "ssl.provider",
    "ssl.secure.random.implementation",
    "security.providers",
    "interceptor.classes",
    "metric.reporters",
)
"""Prefixes of settings of Kafka's own client without a counterpart in librdkafka."""


def _unknown(name: str, where: str) -> UsageError:
    return UsageError(
        f"{where}: kstate uses librdkafka, which has no equivalent of {name}",
        hint="remove this setting or use a librdkafka setting instead",
    )


def cause_of(error: BaseException) -> Any:
    """Return the KafkaError in an exception of the client; other exceptions are returned themselves."""
    return error.args[0] if error.args else error


def refused_by_client(error: BaseException) -> UsageError:
    """Return the error for settings that librdkafka rejects: with the name of the setting, never with its value."""
    cause = cause_of(error)
    text = str(cause)
    if hasattr(cause, "str"):
        text = str(cause.str())
    match = re.search(r'[Nn]o such configuration property: "([^"]*)"', text) or re.search(
        r'configuration property "([^"]*)"', text
    )
    # The message of librdkafka may contain the value, which may be a password. So only the name of the setting is used.
    setting = "one of these settings"
    if match:
        setting = f"the setting {match[1]}"
    return UsageError(f"kstate uses librdkafka, which rejects {setting}", hint=f"correct {option.KAFKA_SETTINGS}")
