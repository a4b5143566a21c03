"""Write deploy/contents again: the software bill of materials of each image, CycloneDX 1.6 in JSON.

It is made of deploy/locks, which pins every package by version and hash, and deploy/contents/licences.txt. The same
files give the same bytes. ``python deploy/sbom.py`` writes, and says which package has no licence row.
"""

import hashlib
import json
import re
import sys
import uuid
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LOCKS = ROOT / "deploy" / "locks"
CONTENTS = ROOT / "deploy" / "contents"
IMAGES = ("flexinfer", "agent")
# Licences that may be in an image. Whatever is not here is looked at by a person before it is added.
ALLOWED = frozenset({
    "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-0", "MPL-2.0", "PSF-2.0",
    "Unlicense", "Zlib",
})  # fmt: skip
_PIN = re.compile(r"^([A-Za-z0-9_.-]+)==([^ \\;]+)", re.MULTILINE)


def locked(name: str) -> dict[str, str]:
    """Version by package of a lock."""
    return dict(_PIN.findall((LOCKS / f"{name}.txt").read_text()))


def licences() -> dict[str, str]:
    """SPDX expression by package. Raises ValueError for a row that is none."""
    found = {}
    for line in (CONTENTS / "licences.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, _, expression = line.partition(" ")
            if not expression.strip():
                raise ValueError(f"licences.txt: {name} has no licence")
            found[name] = expression.strip()
    return found


def strange(expression: str) -> set[str]:
    """Licences in an expression that are not allowed; of alternatives one allowed licence is enough."""
    words = [word for word in re.split(r"[\s()]+", expression) if word not in {"", "AND", "WITH"}]
    if "OR" in words and "AND" not in expression:
        options = {word for word in words if word != "OR"}
        return set() if options & ALLOWED else options
    return {word for word in words if word != "OR"} - ALLOWED


def bill(image: str, release: str) -> dict[str, Any]:
    """The document of one image. Raises KeyError for a package without a licence row."""
    known = licences()
    lock = (LOCKS / f"{image}.txt").read_bytes()
    digest = hashlib.sha256(lock).hexdigest()
    components = [
        {
            "type": "library",
            "bom-ref": f"pkg:pypi/{name}@{version}",
            "name": name,
            "version": version,
            "purl": f"pkg:pypi/{name}@{version}",
            "licenses": [{"expression": known[name]}],
        }
        for name, version in sorted(locked(image).items())
    ]
    own = f"pkg:pypi/flexinfer@{release}"
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, f'flexinfer {image} {release} {digest}')}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "container",
                "bom-ref": own,
                "name": f"flexinfer/{image}",
                "version": release,
                "licenses": [{"expression": "Apache-2.0"}],
            },
            "properties": [{"name": f"flexinfer:deploy/locks/{image}.txt:sha256", "value": digest}],
        },
        "components": components,
        "dependencies": [{"ref": own, "dependsOn": [one["bom-ref"] for one in components]}],
    }


def text(image: str) -> str:
    """The file of one image."""
    [release] = re.findall(r'^__version__ = "(.+)"', (ROOT / "flexinfer/__init__.py").read_text(), re.MULTILINE)
    return json.dumps(bill(image, release), indent=1) + "\n"


def main() -> int:
    """Write both files."""
    for image in IMAGES:
        try:
            (CONTENTS / f"{image}.cdx.json").write_text(text(image))
        except KeyError as missing:
            sys.stderr.write(f"sbom: {missing} has no row in deploy/contents/licences.txt: look up its licence\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
