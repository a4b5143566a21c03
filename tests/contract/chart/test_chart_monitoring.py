"""Alerts, dashboards and the scrape configuration name metrics and labels that exist."""

import importlib
import json
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import flexinfer.adapters
import flexinfer.core
import flexinfer.runtime
from flexinfer.telemetry import metrics

ROOT = Path(__file__).resolve().parents[3]
FILES = ROOT / "charts" / "flexinfer" / "files"
# What Prometheus itself adds.
THEIRS = {"job", "instance", "le", "node"}


def expressions() -> list[str]:
    rules = yaml.safe_load((FILES / "rules.yaml").read_text())
    found = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    for path in sorted((FILES / "dashboards").glob("*.json")):
        found += [target["expr"] for panel in json.loads(path.read_text())["panels"] for target in panel["targets"]]
    return found


@pytest.fixture(scope="module")
def known() -> dict[str, set[str]]:
    """Series name to its labels, of every metric any module defines."""
    for package in (flexinfer.adapters, flexinfer.runtime, flexinfer.core):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            importlib.import_module(module.name)
    found: dict[str, set[str]] = {}
    for name, collector in metrics.REGISTRY._names_to_collectors.items():
        labels: Any = getattr(collector, "_labelnames", None) or getattr(collector, "_labels", ())
        found[name] = set(labels)
    return found


@pytest.mark.parametrize("expression", expressions())
def test_series_and_labels_exist(expression: str, known: dict[str, set[str]]) -> None:
    names = re.findall(r"\b(flexinfer_[a-z_]+)", re.sub(r'"[^"]*"', "", expression))
    grouped = {label.strip() for group in re.findall(r"by \(([^)]*)\)", expression) for label in group.split(",")}
    selected = set(re.findall(r"[{,]\s*([a-z_]+)\s*=~?", expression))

    if not names:
        assert expression.startswith("up{")
        return
    for name in names:
        plain = re.sub(r"_(bucket|sum|count)$", "", name)
        assert name in known or plain in known, name
        labels = known.get(name) or known.get(plain) or set()
        assert (grouped | selected) - THEIRS <= labels, f"{name} has {sorted(labels)}"


def test_an_alert_says_what_to_do() -> None:
    rules = yaml.safe_load((FILES / "rules.yaml").read_text())["groups"][0]["rules"]

    for rule in rules:
        assert {"summary", "description"} == set(rule["annotations"])
        assert rule["labels"]["severity"] in ("warning", "critical")
    assert len({rule["alert"] for rule in rules}) == len(rules)


def test_the_scrape_configuration_of_the_page_is_one() -> None:
    page = (ROOT / "docs" / "install.md").read_text()
    [block] = re.findall(r"```yaml\n(scrape_configs:.*?)```", page, re.DOTALL)
    jobs = {job["job_name"]: job for job in yaml.safe_load(block)["scrape_configs"]}

    assert set(jobs) == {"flexinfer-agent", "flexinfer-controller", "flexinfer-scheduler"}
    agents = jobs["flexinfer-agent"]
    assert agents["kubernetes_sd_configs"] == [{"role": "node"}]
    keep, address = agents["relabel_configs"][:2]
    assert keep["source_labels"] == ["__meta_kubernetes_node_label_flexinfer_ai_enabled"]
    assert (address["target_label"], address["replacement"]) == ("__address__", "$1:9100")
    for name, port in (("controller", 8080), ("scheduler", 8000)):
        assert jobs[f"flexinfer-{name}"]["static_configs"][0]["targets"] == [
            f"flexinfer-{name}.flexinfer-system.svc:{port}"
        ]
