"""Random mixed fleets, sequences of pods, and a world that serves them: what placement policies are compared on.

One formula for how much is served, alone or shared. A pod asks for ``demand`` tokens/s and the device it is on could
give it ``speed``, so it needs the share ``demand / speed`` of the device. While the shares on one device add up to at
most 1, everybody gets what was asked for; beyond that all are slowed alike, to ``demand / sum of shares``. A pod that
is refused serves nothing and does not come back. What a policy is worth is the tokens/s the whole fleet serves, as the
mean over the time from the first arrival to the end.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

MIB_PER_MB = 1e6 / (1 << 20)
GB_PER_MIB = (1 << 20) / 1e9
EFFICIENCY = 0.6  # of the memory bandwidth, in decoding
SOFTWARE = {"NVIDIA": 1.0, "AMD": 0.75, "INTEL": 0.55}  # how much of that its kernels reach


@dataclass(frozen=True, slots=True)
class Card:
    """A product as its agent names it. ``bandwidth`` in GB/s, ``price`` per hour and card."""

    vendor: str
    product: str
    arch: str
    memory_mib: int
    bandwidth: float
    price: float


CARDS = (
    Card("NVIDIA", "NVIDIA GeForce RTX 4090", "sm_89", 24564, 1008, 0.60),
    Card("NVIDIA", "NVIDIA GeForce RTX 3090", "sm_86", 24576, 936, 0.35),
    Card("NVIDIA", "NVIDIA GeForce RTX 3060", "sm_86", 12288, 360, 0.12),
    Card("NVIDIA", "NVIDIA L4", "sm_89", 23034, 300, 0.70),
    Card("NVIDIA", "NVIDIA A100-SXM4-80GB", "sm_80", 81920, 2039, 1.80),
    Card("NVIDIA", "NVIDIA T4", "sm_75", 15360, 320, 0.35),
    Card("AMD", "AMD Radeon RX 7900 XTX", "gfx1100", 24560, 960, 0.40),
    Card("AMD", "AMD Radeon PRO W7900", "gfx1100", 49152, 864, 0.80),
    Card("AMD", "AMD Instinct MI210", "gfx90a", 65520, 1638, 1.20),
    Card("INTEL", "Intel Arc A770 Graphics", "xe-hpg", 16288, 560, 0.10),
    Card("INTEL", "Intel Arc B580 Graphics", "xe2", 12216, 456, 0.10),
)


@dataclass(frozen=True, slots=True)
class Node:
    """``count`` equal cards."""

    name: str
    card: int
    count: int
    price: float | None


@dataclass(frozen=True, slots=True)
class Model:
    """``speeds``: true tokens/s by card. ``measured``: the cards somebody has measured it on."""

    name: str
    memory_mib: float
    speeds: tuple[float, ...]
    measured: frozenset[int]


@dataclass(frozen=True, slots=True)
class Pod:
    """``vendor`` empty: any. ``until`` is infinite for a pod that stays."""

    number: int
    model: int
    at: float
    until: float
    demand: float
    vendor: str


@dataclass(frozen=True, slots=True)
class Setting:
    """What a family of cases has in common. ``load``: what is asked for, as a share of what the fleet could hold
    (whole devices) or serve at its mean speed (shared). ``stays``: nobody leaves."""

    name: str
    nodes: int
    whole: bool
    load: float
    stays: bool = False
    pods: int = 4000


@dataclass(frozen=True, slots=True)
class Case:
    """One fleet and one sequence of pods, in order of arrival."""

    setting: Setting
    nodes: tuple[Node, ...]
    models: tuple[Model, ...]
    pods: tuple[Pod, ...]
    end: float

    @property
    def starts(self) -> NDArray[np.intp]:
        """First device of each node; devices are numbered through the fleet."""
        return np.cumsum([0, *[node.count for node in self.nodes][:-1]])

    @property
    def owner(self) -> NDArray[np.intp]:
        """Node of each device."""
        return np.repeat(np.arange(len(self.nodes)), [node.count for node in self.nodes])


def make_case(setting: Setting, seed: int) -> Case:
    """The same for the same arguments."""
    dice = random.Random(f"{setting.name}/{seed}")
    nodes = _fleet(setting, dice)
    cards = sorted({node.card for node in nodes})
    models = tuple(_model(number, dice) for number in range(dice.randint(3, 6)))
    pods, end = _pods(setting, nodes, models, cards, dice)
    return Case(setting, nodes, models, pods, end)


def _fleet(setting: Setting, dice: random.Random) -> tuple[Node, ...]:
    kinds = [dice.choice([n for n, card in enumerate(CARDS) if card.vendor == vendor]) for vendor in SOFTWARE]
    kinds += dice.sample(range(len(CARDS)), 3)
    popular = [dice.random() ** 2 + 0.05 for _ in kinds]
    priced = dice.random() < 0.3  # of the fleets have prices at all, on most of their nodes
    found = []
    for number in range(setting.nodes):
        kind = kinds[number] if number < len(SOFTWARE) else dice.choices(kinds, popular)[0]
        count = dice.choice((1, 1, 1, 2) if setting.nodes < 10 else (1, 1, 2, 4))
        price = CARDS[kind].price * count * dice.uniform(0.7, 1.4) if priced and dice.random() < 0.8 else None
        found.append(Node(f"node-{number:03d}", kind, count, price))
    dice.shuffle(found)
    return tuple(found)


def _model(number: int, dice: random.Random) -> Model:
    """Weights take 60 to 85 percent of the memory; speed follows bandwidth, skewed by up to a half each way."""
    gigabytes = math.exp(dice.uniform(math.log(2), math.log(20)))
    weights = gigabytes * dice.uniform(0.6, 0.85)
    speeds = tuple(
        EFFICIENCY * card.bandwidth * SOFTWARE[card.vendor] / weights * math.exp(dice.gauss(0, 0.25)) for card in CARDS
    )
    known = frozenset(n for n in range(len(CARDS)) if dice.random() < 0.75) if dice.random() < 0.95 else frozenset()
    return Model(f"model-{number}", gigabytes / GB_PER_MIB, speeds, known)


def _pods(
    setting: Setting, nodes: Sequence[Node], models: Sequence[Model], cards: Sequence[int], dice: random.Random
) -> tuple[tuple[Pod, ...], float]:
    devices = sum(node.count for node in nodes)
    popular = [dice.random() + 0.1 for _ in models]
    per_device = 1.0 if setting.whole else 2.0  # shared: pods ask for half of a mean device each, on average
    at_once = setting.load * devices * per_device
    count = min(setting.pods, round(at_once * (1 if setting.stays else 3)))
    stay = 3600.0
    # A third of the pods come in bursts, as replicas of one model within a second.
    found: list[Pod] = []
    now = 0.0
    while len(found) < count:
        burst = min(dice.randint(2, 6) if dice.random() < 0.15 else 1, count - len(found))
        model = dice.choices(range(len(models)), popular)[0]
        vendor = CARDS[dice.choice(nodes).card].vendor if setting.whole else ""
        for _ in range(burst):
            now += 0.2
            until = math.inf if setting.stays else now + dice.expovariate(1 / stay)
            mean = sum(models[model].speeds[card] for card in cards) / len(cards)
            demand = math.inf if setting.whole else mean / per_device * math.exp(dice.gauss(-0.125, 0.5))
            found.append(Pod(len(found), model, now, until, demand, vendor))
        now += dice.expovariate(at_once / stay) * burst
    return tuple(found), now + (stay if setting.stays else 0.0)


def served(demand: float, shares: float) -> float:
    """Tokens/s of a device by the sums over its pods."""
    return demand / max(1.0, shares)


@dataclass(slots=True)
class World:
    """Which pod runs where, and what is served. A pod gets the device of its node with the most free memory.

    Arrays by device: ``free`` MiB, ``demand`` (sum, tokens/s), ``shares`` (sum), ``pods`` (number). By node: ``pick``,
    the device the next pod would get, OUT if there is none.
    """

    case: Case
    now: float = 0.0
    tokens: float = 0.0
    rate: float = 0.0
    refused: int = 0
    placed: dict[int, int] = field(default_factory=dict)  # pod -> device
    owner: NDArray[np.intp] = field(init=False)
    starts: NDArray[np.intp] = field(init=False)
    kind: NDArray[np.intp] = field(init=False)
    free: NDArray[np.float64] = field(init=False)
    demand: NDArray[np.float64] = field(init=False)
    shares: NDArray[np.float64] = field(init=False)
    pods: NDArray[np.intp] = field(init=False)
    pick: NDArray[np.intp] = field(init=False)

    def __post_init__(self) -> None:
        case = self.case
        self.owner, self.starts = case.owner, case.starts
        self.kind = np.array([node.card for node in case.nodes])
        self.free = np.array([float(CARDS[case.nodes[node].card].memory_mib) for node in self.owner])
        self.demand, self.shares = np.zeros(len(self.owner)), np.zeros(len(self.owner))
        self.pods = np.zeros(len(self.owner), dtype=np.intp)
        self.pick = self.starts.copy()

    def asks(self, pod: Pod, card: int) -> tuple[float, float]:
        """``(demand, share)`` of a pod on a card; a pod that asks for all it can get asks for the card's speed."""
        speed = self.case.models[pod.model].speeds[card]
        demand = min(pod.demand, speed) if self.case.setting.whole else pod.demand
        return demand, demand / speed

    def fitting(self, pod: Pod) -> NDArray[np.intp]:
        """Nodes that can take the pod now."""
        memory = self.case.models[pod.model].memory_mib
        keeps = self.free[self.pick] >= memory
        if self.case.setting.whole:
            keeps &= self.pods[self.pick] == 0
        if pod.vendor:
            keeps &= np.array([CARDS[kind].vendor == pod.vendor for kind in range(len(CARDS))])[self.kind]
        return np.flatnonzero(keeps)

    def advance(self, now: float) -> None:
        """Time passes; everybody is served."""
        self.tokens += self.rate * (now - self.now)
        self.now = now

    def place(self, pod: Pod, node: int) -> bool:
        """False if the pod does not fit there: it fails to start and counts as refused."""
        device = int(self.pick[node])
        memory = self.case.models[pod.model].memory_mib
        if self.free[device] < memory or (self.case.setting.whole and self.pods[device]):
            return False
        self.placed[pod.number] = device
        self._change(pod, device, 1)
        return True

    def remove(self, pod: Pod) -> int | None:
        """Ends a pod; its node, None if it never ran."""
        device = self.placed.get(pod.number)
        if device is None:
            return None
        self._change(pod, device, -1)
        return int(self.owner[device])

    def _change(self, pod: Pod, device: int, sign: int) -> None:
        node = int(self.owner[device])
        demand, share = self.asks(pod, int(self.kind[node]))
        self.rate -= served(self.demand[device], self.shares[device])
        self.pods[device] += sign
        self.free[device] -= sign * self.case.models[pod.model].memory_mib
        if self.pods[device]:
            self.demand[device] += sign * demand
            self.shares[device] += sign * share
        else:
            self.demand[device] = self.shares[device] = 0.0
        self.rate += served(self.demand[device], self.shares[device])
        mine = range(int(self.starts[node]), int(self.starts[node]) + self.case.nodes[node].count)
        if self.case.setting.whole:
            self.pick[node] = min(mine, key=lambda one: (self.pods[one] > 0, one))
        else:
            self.pick[node] = min(mine, key=lambda one: (-self.free[one], self.shares[one], one))
