"""What a wheel needs, as CycloneDX 1.6: `python -m tests.packaging.sbom kstate-0.1.0-py3-none-any.whl >sbom.cdx.json`.

All that it depends on, and what that depends on, in the versions that are installed here: those that the tests ran with.
The same wheel and environment give the same text.
"""

from __future__ import annotations

import email
import hashlib
import json
import re
import sys
import uuid
import zipfile
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement


def sbom(wheel: Path) -> dict[str, Any]:
    """The document. Raises PackageNotFoundError where something that is needed is not installed."""
    metadata = _metadata(wheel)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    itself = {
        **_component(metadata["Name"], metadata["Version"], metadata),
        "type": "application",
        "hashes": [{"alg": "SHA-256", "content": digest}],
    }
    needs = {itself["bom-ref"]: sorted(_refs(metadata.get_all("Requires-Dist", []), ()))}
    components: dict[str, dict[str, Any]] = {}
    ahead = [*_needed_distributions(metadata.get_all("Requires-Dist", []), ())]
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
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, digest)}",
        "version": 1,
        "metadata": {"component": itself},
        "components": [components[name] for name in sorted(components)],
        "dependencies": [{"ref": name, "dependsOn": needs[name]} for name in sorted(needs)],
    }


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
    return f"pkg:pypi/{re.sub(r'[-_.]+', '-', name).lower()}@{version}"


def _component(name: str, version: str, messages: Any) -> dict[str, Any]:
    ref = _purl(name, version)
    component: dict[str, Any] = {"type": "library", "bom-ref": ref, "name": name, "version": version, "purl": ref}
    if messages["License-Expression"]:
        component["licenses"] = [{"expression": messages["License-Expression"]}]
    elif messages["License"] and "\n" not in messages["License"]:
        component["licenses"] = [{"license": {"name": messages["License"]}}]
    return component


if __name__ == "__main__":
    print(json.dumps(sbom(Path(sys.argv[1])), indent=1))
