"""How many examples a fuzz test draws: few and always the same in the gate, many and new ones in ``make fuzz``."""

import os

from hypothesis import HealthCheck, settings

FACTOR = int(os.environ.get("FLEXINFER_FUZZ_FACTOR", "1"))


def examples(count: int) -> settings:
    """Settings with ``count`` examples in the gate."""
    return settings(
        max_examples=count * FACTOR, derandomize=FACTOR == 1, database=None, deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
    )  # fmt: skip
