"""How many examples a fuzz test draws: few and always the same in the gate, many and new ones in ``make fuzz``."""

import os

from hypothesis import HealthCheck, Phase, settings

FACTOR = int(os.environ.get("FLEXINFER_FUZZ_FACTOR", "1"))


def examples(count: int) -> settings:
    """Settings with ``count`` examples in the gate, where a failure is shown as it was drawn: making it small takes
    minutes."""
    phases = [Phase.explicit, Phase.generate] if FACTOR == 1 else [*Phase]
    return settings(
        max_examples=count * FACTOR, derandomize=FACTOR == 1, database=None, deadline=None, phases=phases,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
    )  # fmt: skip
