"""What the images are made of: packages whose licence somebody looked at, a bill of materials, pinned hashes."""

import importlib.metadata
import json
import re
from pathlib import Path

import pytest

from deploy import audit, sbom

ROOT = Path(__file__).resolve().parents[3]
LOCKS = ("build", *sbom.IMAGES)
# What package authors write, where it is no SPDX expression.
WORDS = {
    "apache 2.0": "Apache-2.0", "apache 2 license": "Apache-2.0", "mit license": "MIT", "bsd": "BSD-3-Clause",
    "apache software license": "Apache-2.0", "bsd license": "BSD-3-Clause",
}  # fmt: skip


@pytest.mark.parametrize("lock", LOCKS)
def test_every_package_has_a_licence_that_is_allowed(lock: str) -> None:
    known = sbom.licences()
    for name in sbom.locked(lock):
        assert name in known, f"{name} is new: look up its licence and add a row to deploy/contents/licences.txt"
        assert not sbom.strange(known[name]), f"{name}: {known[name]}"


def test_no_row_is_left_over() -> None:
    assert set(sbom.licences()) == {name for lock in LOCKS for name in sbom.locked(lock)}


@pytest.mark.parametrize("lock", LOCKS)
def test_rows_agree_with_what_packages_say_of_themselves(lock: str) -> None:
    """Where the locked version is installed; other versions may say it differently."""
    for name, version in sbom.locked(lock).items():
        try:
            about = importlib.metadata.metadata(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        said = about.get("License-Expression") or about.get("License") or ""
        if about["Version"] == version and said and "\n" not in said and len(said) < 80:
            row = sbom.licences()[name]
            assert WORDS.get(said.lower(), said) == row or WORDS.get(said.lower(), said) in row.split(" OR "), name


@pytest.mark.parametrize(
    ("expression", "wrong"),
    [("MIT", set()), ("GPL-3.0-only", {"GPL-3.0-only"}), ("MIT AND AGPL-3.0-only", {"AGPL-3.0-only"}),
     ("GPL-2.0-only OR MIT", set()), ("LicenseRef-Own", {"LicenseRef-Own"}),
     ("MPL-2.0 AND (Apache-2.0 OR MIT)", set())],
)  # fmt: skip
def test_a_licence_nobody_looked_at_is_refused(expression: str, wrong: set[str]) -> None:
    assert sbom.strange(expression) == wrong


@pytest.mark.parametrize("image", sbom.IMAGES)
def test_the_bill_of_materials_is_that_of_the_lock(image: str) -> None:
    file = ROOT / "deploy" / "contents" / f"{image}.cdx.json"

    assert file.read_text() == sbom.text(image), "run: make sbom"
    found = json.loads(file.read_text())
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.6")
    assert {part["name"]: part["version"] for part in found["components"]} == sbom.locked(image)
    assert len({part["bom-ref"] for part in found["components"]}) == len(found["components"])


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_has_hashes_and_is_a_pin(lock: str) -> None:
    text = (ROOT / "deploy" / "locks" / f"{lock}.txt").read_text()
    entries = re.split(r"\n(?=[A-Za-z])", "\n" + text.partition("\n")[2])[1:]

    assert len(entries) == len(sbom.locked(lock))
    for entry in entries:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry[:60]
        assert not re.search(r"://|^-|\bgit\b|--hash=(?!sha256)", entry.partition("\n")[0]), entry[:60]


def test_the_images_install_nothing_without_its_hash() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    for line in re.findall(r"pip (?:--python \S+ )?install [^\n&]*", dockerfile):
        assert "--require-hashes" in line or ("--no-index" in line and "--no-deps" in line), line
    assert not re.search(r"\b(?:curl|wget|apt-get|git clone)\b", dockerfile)


def test_an_audit_tells_found_from_not_looked_up() -> None:
    report = {
        "dependencies": [
            {"name": "a", "version": "1", "vulns": []},
            {"name": "b", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3"]}]},
            {"name": "c", "skip_reason": "not found"},
        ]
    }

    assert audit.verdict(report) == (["b 2: PYSEC-1, fixed in 3"], ["c: not found"])
