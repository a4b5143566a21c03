"""The documentation names what there is."""

import re
from pathlib import Path
from typing import get_args

from flexinfer.adapters.web.global_proxy import figures as global_figures
from flexinfer.adapters.web.proxy import figures
from flexinfer.core.routing.balance import STRATEGIES
from flexinfer.core.routing.refusal import Code

PAGE = (Path(__file__).parents[3] / "docs" / "proxies.md").read_text()


def names_in(module: object, prefix: str) -> set[str]:
    text = Path(module.__file__).read_text()  # type: ignore[attr-defined]
    return set(re.findall(rf'"{prefix}([a-z_]+)"', text))


def test_every_metric_is_described() -> None:
    for module, prefix in ((figures, "flexinfer_proxy_"), (global_figures, "flexinfer_global_")):
        found = names_in(module, prefix)
        assert len(found) > 8
        assert not [name for name in found if f"`{name}" not in PAGE]


def test_every_error_code_is_described() -> None:
    assert not [code for code in get_args(Code) if f"`{code}`" not in PAGE]


def test_every_rule_of_choice_is_described() -> None:
    assert not [name for name in STRATEGIES if f"`{name}`" not in PAGE]
