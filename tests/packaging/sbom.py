"""What a wheel needs, as CycloneDX 1.6: `python -m tests.packaging.sbom WHEEL requirements.lock >sbom.cdx.json`.

All that it depends on, and what that depends on, in the versions that are installed here: those that the tests ran with. What
only its extras need is optional. Hashes are those of ``requirements.lock``, of the files that pip installs. The same wheel and
environment give the same text.
"""

from __future__ import annotations

import email
import hashlib
import json
import re
import sys
import uuid
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

EXTRAS = ("delta", "iceberg", "kafka", "s3")
"""The extras of kstate itself."""


def sbom(wheel: Path, hashes: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The document; ``hashes``: name -> SHA-256. Raises PackageNotFoundError where something that is needed is not installed."""
    metadata = _metadata(wheel)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    itself = {
        **_component(metadata["Name"], metadata["Version"], metadata),
        "type": "application",
        "hashes": [{"alg": "SHA-256", "content": digest}],
    }
    requirements = metadata.get_all("Requires-Dist", [])
    needs = {itself["bom-ref"]: sorted(_refs(requirements, EXTRAS))}
    components, needs_of = _closure(requirements, EXTRAS)
    needs |= needs_of
    required, _ = _closure(requirements, ())
    for ref, component in components.items():
        component["scope"] = "required" if ref in required else "optional"
        digest_of = (hashes or {}).get(canonical(component["name"]))
        if digest_of is not None:
            component["hashes"] = [{"alg": "SHA-256", "content": digest_of}]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, digest)}",
        "version": 1,
        "metadata": {"component": itself},
        "components": [components[name] for name in sorted(components)],
        "dependencies": [{"ref": name, "dependsOn": needs[name]} for name in sorted(needs)],
    }


def needed_by(requirements: Sequence[str]) -> dict[str, str]:
    """Name -> installed version of all that these requirements need, with the extras of kstate."""
    components, _ = _closure(requirements, EXTRAS)
    return {canonical(component["name"]): component["version"] for component in components.values()}


def without_extras(requirements: Sequence[str]) -> frozenset[str]:
    """Names of all that these requirements need without an extra."""
    components, _ = _closure(requirements, ())
    return frozenset(canonical(component["name"]) for component in components.values())


def requirements_of(wheel: Path) -> list[str]:
    """The requirements of a wheel."""
    return [*_metadata(wheel).get_all("Requires-Dist", [])]


def hashes_in(lock: str) -> dict[str, str]:
    """Name -> SHA-256 of the pins in a file like ``requirements.lock``."""
    return dict(re.findall(r"^(\S+)==\S+ --hash=sha256:([0-9a-f]{64})$", lock, re.MULTILINE))


def canonical(name: str) -> str:
    """The name of a distribution as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _closure(
    requirements: Sequence[str], extras: Sequence[str]
) -> tuple[dict[str, dict[str, Any]], dict[str, list[str]]]:
    """Return the components by their reference, and the references that each depends on."""
    needs: dict[str, list[str]] = {}
    components: dict[str, dict[str, Any]] = {}
    ahead = [*_needed_distributions(requirements, extras)]
    while ahead:
        results, extras = ahead.pop()
        component = _component(results.name, results.version, results.metadata)
        requires = [*(results.requires or ())]
        if component["bom-ref"] not in components or extras:
            components[component["bom-ref"]] = component
            needs[component["bom-ref"]] = sorted({*needs.get(component["bom-ref"], ()), *_refs(requires, extras)})
            ahead += [
                (below, more)
                for below, more in _needed_distributions(requires, extras)
                if _ref(below) not in components
            ]
    return components, needs


def _metadata(wheel: Path) -> Any:
    with zipfile.ZipFile(wheel) as handle:
        (name,) = (entry for entry in handle.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", entry))
        return email.message_from_bytes(handle.read(name))


def _needed_distributions(
    lines: Sequence[str], extras: Sequence[str]
) -> Iterator[tuple[metadata.Distribution, tuple[str, ...]]]:
    """What is needed on this machine, installed, with the extras of it that are asked for."""
    for line in lines:
        requirement = Requirement(line)
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield metadata.distribution(requirement.name), tuple(sorted(requirement.extras))


def _refs(lines: Sequence[str], extras: Sequence[str]) -> set[str]:
    return {_ref(results) for results, _ in _needed_distributions(lines, extras)}


def _ref(distribution: metadata.Distribution) -> str:
    return _purl(distribution.name, distribution.version)


def _purl(name: str, version: str) -> str:
    return f"pkg:pypi/{canonical(name)}@{version}"


def _component(name: str, version: str, messages: Any) -> dict[str, Any]:
    ref = _purl(name, version)
    component: dict[str, Any] = {"type": "library", "bom-ref": ref, "name": name, "version": version, "purl": ref}
    if messages["License-Expression"]:
        component["licenses"] = [{"expression": messages["License-Expression"]}]
    elif messages["License"] and "\n" not in messages["License"]:
        component["licenses"] = [{"license": {"name": messages["License"]}}]
    else:
        # Older distributions state it only here: "License :: OSI Approved :: MIT License".
        names = [entry for entry in messages.get_all("Classifier", []) if entry.startswith("License ::")]
        if names:
            component["licenses"] = [{"license": {"name": entry.rpartition(" :: ")[2]}} for entry in names]
    return component


if __name__ == "__main__":
    print(json.dumps(sbom(Path(sys.argv[1]), hashes_in(Path(sys.argv[2]).read_text(encoding="utf-8"))), indent=1))
