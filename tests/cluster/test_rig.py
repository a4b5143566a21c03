"""The rig itself: a real API server of the pinned version answers, with RBAC on."""

import binaries
from rig import NOBODY, Rig


def test_the_real_api_server_answers(rig: Rig) -> None:
    status, body = rig.get("/version")

    assert status == 200
    assert body["gitVersion"] == binaries.version()  # type: ignore[index]


def test_rbac_is_enforced(rig: Rig) -> None:
    admin, _ = rig.get("/api/v1/nodes")
    nobody, _ = rig.get("/api/v1/nodes", NOBODY)

    assert (admin, nobody) == (200, 403)
