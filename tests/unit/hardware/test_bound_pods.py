"""Pods that are bound to a node compared with its hardware."""

from typing import Any

import pytest

from flexinfer.contracts.events import Cpu, Device, NodeHardware, Partition
from flexinfer.contracts.extender import ContainerSpec, PodMeta, PodObject, PodSpec, ResourceLists
from flexinfer.core.fleet.bound import misfits


def hardware(*devices: Device) -> NodeHardware:
    return NodeHardware(node="n", devices=devices, cpu=Cpu())


def device(at: int = 0, **fields: Any) -> Device:
    values = {"index": at, "uuid": f"u{at}", "vendor": "NVIDIA", "arch": "sm_89", "memory_mib": 24564} | fields
    return Device(**values)


def pod(requests: dict[str, str] | None = None, **annotations: str) -> PodObject:
    return PodObject(
        metadata=PodMeta(annotations={f"flexinfer.ai/{key.replace('_', '.', 1)}": v for key, v in annotations.items()}),
        spec=PodSpec(containers=(ContainerSpec(resources=ResourceLists(limits=requests)),)),
    )


NODE = hardware(device(0), device(1))


@pytest.mark.parametrize(
    ("asked", "node", "reasons"),
    [
        (pod(), NODE, ()),
        (pod({"nvidia.com/gpu": "2"}), NODE, ()),
        (pod({"nvidia.com/gpu": "4"}), NODE, ("asks for 4 NVIDIA accelerators, the node has 2",)),
        (pod({"amd.com/gpu": "1"}), NODE, ("asks for 1 AMD accelerators, the node has NVIDIA",)),
        (pod({"amd.com/gpu": "1"}), hardware(), ("asks for 1 AMD accelerators, the node has no usable accelerator",)),
        (pod(gpu_arch="gfx90a"), NODE, ("asks for architecture gfx90a, the node has sm_89",)),
        (pod(gpu_arch="sm_80, sm_89"), NODE, ()),
        (pod({"nvidia.com/gpu": "1"}, gpu_arch="sm_90"), hardware(device(arch=None)), ()),
        (
            pod({"nvidia.com/gpu": "1"}, **{"gpu_vram-estimate-mb": "40000"}), NODE,
            ("needs 38147 MiB on each device, the largest of the node has 24564",),
        ),
        (pod({"nvidia.com/gpu": "2"}, **{"gpu_vram-estimate-mb": "40000"}), NODE, ()),
        (pod({"nvidia.com/gpu": "1"}, **{"gpu_vram-estimate-mb": "40000"}), hardware(device(memory_mib=None)), ()),
        (pod({"nvidia.com/gpu": "1"}), hardware(device(counted=False)),
         ("asks for 1 NVIDIA accelerators, the node has no usable accelerator",)),
        (pod({"nvidia.com/mig-3g.20gb": "1"}), NODE, ("asks for 1 NVIDIA 3g.20gb accelerators, the node has 0",)),
        (pod({"nvidia.com/mig-3g.20gb": "1"}),
         hardware(device(partition=Partition(kind="mig", profile="3g.20gb"))), ()),
    ],
)  # fmt: skip
def test_misfits(asked: PodObject, node: NodeHardware, reasons: tuple[str, ...]) -> None:
    assert misfits(asked, node) == reasons
