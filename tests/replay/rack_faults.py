"""Records the rack's faults from simulated time: ``python tests/replay/rack_faults.py``.

Seven minutes of thirty virtual nodes: devices are lost, nodes drain and come back, agents fall silent; a pod of each
kind asks before, during and after. The tape stays as it is; this is how it was made.
"""

import gzip
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from flexinfer.testing.fleet import SimulatedFleet, load_fleet, simulate

ROOT = Path(__file__).resolve().parents[2]
TAPE = ROOT / "tests" / "tapes" / "recorded" / "rack-faults-scheduler.jsonl.gz"
RACK = load_fleet(ROOT / "flexinfer" / "local" / "examples" / "rack.yaml").model_copy(
    update={"telemetry_interval": 30.0}
)


def pod(name: str, vendor: str, vram: int) -> dict[str, Any]:
    notes = {
        "flexinfer.ai/benchmark-key": "llama-0123456789ab",
        "flexinfer.ai/model": "llama",
        "flexinfer.ai/gpu.vendor": vendor,
        **({"flexinfer.ai/gpu.vram-estimate-mb": str(vram)} if vram else {}),
    }
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": notes}
    return {"metadata": meta, "spec": {"containers": [{"name": "engine"}]}}


async def story(sim: SimulatedFleet, folder: Path) -> Path:
    extender = await sim.extender(record=folder)
    for seconds in (45, 150, 235, 255, 315, 425):
        await sim.until(seconds)
        for vendor, vram in (("nvidia", 14_000), ("amd", 100_000), ("intel", 20_000), ("cpu", 0)):
            extender.place(pod(f"{vendor}-at-{seconds}", vendor, vram))
            await sim.run(0.5)
    extender.close()
    assert extender.tape is not None
    return extender.tape


def main() -> None:
    with TemporaryDirectory() as folder:
        raw = simulate(RACK, lambda sim: story(sim, Path(folder))).read_bytes()
    TAPE.write_bytes(gzip.compress(raw, 9, mtime=0))


if __name__ == "__main__":
    main()
