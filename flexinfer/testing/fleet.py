"""Virtual fleets for tests: declared hardware, the real agent's loops, and time that runs as fast as it can.

>>> from flexinfer.testing.fleet import parse_fleet, simulate
>>> fleet = parse_fleet({"nodes": [{"name": "n", "speed": {"tokens_per_second": 10}}]}, "example")
>>> simulate(fleet, lambda sim: sim.run(600))
>>> simulate(fleet, lambda sim: sim.digest_after(600)) == simulate(fleet, lambda sim: sim.digest_after(600))
True
"""

from flexinfer.testing.virtual.deciding import Placement, SimulatedExtender
from flexinfer.testing.virtual.declared import ImpossibleFleet, VirtualFleet, VirtualNode, load_fleet, parse_fleet
from flexinfer.testing.virtual.engines import VirtualEngine
from flexinfer.testing.virtual.simulated import SimulatedFleet, simulate

__all__ = [
    "ImpossibleFleet", "Placement", "SimulatedExtender", "SimulatedFleet", "VirtualEngine", "VirtualFleet",
    "VirtualNode", "load_fleet", "parse_fleet", "simulate",
]  # fmt: skip
