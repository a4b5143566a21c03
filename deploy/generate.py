"""Write the files made from code: ``python deploy/generate.py``. A test fails when one of them is stale."""  # noqa: INP001 - a script

import json
import sys
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).parent))

import chart_values

from flexinfer.contracts.crds import crd_manifests
from flexinfer.contracts.permissions import permissions
from flexinfer.core.lifecycle.diagram import phases_page

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "charts" / "flexinfer"
_HEADER = "# Generated from flexinfer/contracts/crds by deploy/generate.py.\n"

_README = """# flexinfer

The Helm chart of FlexInfer, with NATS. How to install, upgrade and remove it: [docs/install.md](../../docs/install.md).

This page is generated from `values.yaml` by `deploy/generate.py`.

"""

# User of the bus in the chart -> (component whose rights it has, names its clients connect with).
_USERS = {
    "agent": ("agent", ("flexinfer-agent *",)),
    "manager": ("manager", ("flexinfer-manager *",)),
    "scheduler": ("scheduler", ("scheduler",)),
    "proxy": ("proxy", ("flexinfer-proxy *",)),
    "global-proxy": ("global-proxy", ("flexinfer-global-proxy",)),
    "dashboard": ("dashboard", ("dashboard",)),
    "viewer": ("dashboard", ("status", "events", "explain", "bench-tools")),
}


def bus_rights() -> dict[str, dict[str, list[str]]]:
    """``permissions`` of each user as nats-server takes them; ``@cluster@`` stands for the cluster's name."""
    found = {}
    for user, (component, clients) in _USERS.items():
        everywhere = component == "global-proxy"
        rights = [permissions(component, client, "*", "*" if everywhere else "@cluster@") for client in clients]
        publish = {subject for right in rights for subject in right.publish}
        if everywhere:  # it follows all clusters and publishes in none
            publish = {subject for subject in publish if subject.startswith("$JS.")}
        subscribe = {subject for right in rights for subject in right.subscribe}
        found[user] = {"publish": sorted(publish), "subscribe": sorted(subscribe)}
    return found


def generated() -> dict[Path, str]:
    """Path and content of every generated file."""
    files = {
        folder / f"{crd['metadata']['name']}.yaml": _HEADER + yaml.safe_dump(crd, sort_keys=False, width=120)
        for crd in crd_manifests()
        for folder in (ROOT / "deploy" / "crds", CHART / "files" / "crds")
    }
    files[CHART / "files" / "nats-permissions.json"] = json.dumps(bus_rights(), indent=1) + "\n"
    values = (CHART / "values.yaml").read_text()
    files[CHART / "values.schema.json"] = json.dumps(chart_values.schema(values), indent=1) + "\n"
    files[CHART / "README.md"] = _README + chart_values.table(values)
    files[ROOT / "docs" / "phases.md"] = phases_page()
    return files


if __name__ == "__main__":
    for path, text in generated().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
