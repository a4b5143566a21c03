"""nvidia-smi in one root: one query for everything, and what has to be asked beside it when something is broken.

The first query asks for fields every driver knows. When it worked, the further ones (clocks, throttling, ECC) are
tried once, and from then on one call brings all.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from flexinfer.adapters.gpu.asking import Asking, Root, said, unanswered
from flexinfer.core.hardware import nvidia_smi
from flexinfer.core.hardware.findings import Attempt
from flexinfer.core.hardware.nvidia import Reading
from flexinfer.core.hardware.nvidia_smi import Table
from flexinfer.core.hardware.pci import address_of
from flexinfer.core.hardware.readings import text_of
from flexinfer.ports import Clock, ToolResult

MOST_GPUS = 64
# These say that nothing behind the tool works; listing devices one by one would only say it again.
HOPELESS = frozenset(
    {"driver-not-loaded", "version-mismatch", "library-not-found", "no-devices", "nvml-unknown", "timeout"}
)


@dataclass(slots=True)
class NvidiaTool:
    """One nvidia-smi. ``fields`` are those its driver is known to answer, None before the first answer."""

    root: Root
    program: str
    clock: Clock
    fields: tuple[str, ...] | None = None

    @property
    def source(self) -> str:
        """Its name in accounts of what was tried."""
        return f"{self.root.label} {self.program}".strip()

    async def describe(self, asking: Asking) -> tuple[list[Reading], Attempt]:
        """Every device with everything known, broken ones included."""
        began = self.clock.monotonic()
        result, fields = await self._query(asking, self.fields or nvidia_smi.FIELDS)
        attempt = unanswered(self.source, result, self.root, self.clock.monotonic() - began)
        if attempt:
            return [], attempt
        table = nvidia_smi.parse_table(text_of(result.stdout), fields)
        reason, line = ("", "") if table.rows else nvidia_smi.failure_of(said(result), result.code)
        if table.rows and self.fields is None:
            table, fields = await self._learn(asking, table, fields)
        readings = [nvidia_smi.reading_of(row) for row in table.rows]
        if readings or reason not in HOPELESS:
            readings = await self._complete(asking, fields, readings, [*table.other, *said(result).splitlines()])
        seconds = self.clock.monotonic() - began
        if not readings:
            return [], Attempt(self.source, "failed", reason, line, seconds)
        self.fields = fields
        return readings, Attempt(self.source, "ok", reason, line, seconds)

    async def figures(self, asking: Asking) -> list[Reading]:
        """One call: the devices it lists with their figures, MIG instances not asked for."""
        result, fields = await self._query(asking, self.fields or nvidia_smi.FIELDS)
        return [nvidia_smi.reading_of(row) for row in nvidia_smi.parse_table(text_of(result.stdout), fields).rows]

    async def _query(
        self, asking: Asking, fields: tuple[str, ...], only: str | None = None
    ) -> tuple[ToolResult, tuple[str, ...]]:
        """The answer, and the fields that were left after the tool refused some."""
        while True:
            result = await asking.call(self.root.argv(self.program, nvidia_smi.query_args(fields, only)))
            refused = nvidia_smi.bad_fields(said(result)) & set(fields)
            if not refused or len(refused) == len(fields):
                return result, fields
            fields = tuple(name for name in fields if name not in refused)

    async def _learn(self, asking: Asking, table: Table, fields: tuple[str, ...]) -> tuple[Table, tuple[str, ...]]:
        """Try the further fields; whatever happens, the first answer stands."""
        result, more = await self._query(asking, (*fields, *nvidia_smi.FURTHER_FIELDS))
        richer = nvidia_smi.parse_table(text_of(result.stdout), more)
        return (richer, more) if len(richer.rows) == len(table.rows) else (table, fields)

    async def _complete(
        self, asking: Asking, fields: tuple[str, ...], readings: list[Reading], lines: list[str]
    ) -> list[Reading]:
        """Add what the query alone does not tell: MIG instances, devices it gave up on, warnings."""
        if not readings or any(reading.mig for reading in readings):
            result = await asking.call(self.root.argv(self.program, nvidia_smi.LIST_ARGS))
            listed, complaints = nvidia_smi.parse_listing(text_of(result.stdout))
            lines = [*lines, *complaints, *text_of(result.stderr).splitlines()]
            if not readings:
                lost = {address_of(line) for line in complaints} - {None}
                readings = await self._one_by_one(asking, fields, listed[:MOST_GPUS], lost)
            readings = nvidia_smi.with_parts(readings, listed)
        return nvidia_smi.with_complaints(readings, lines)

    async def _one_by_one(
        self, asking: Asking, fields: tuple[str, ...], listed: Sequence[nvidia_smi.Listed], lost: Collection[str | None]
    ) -> list[Reading]:
        """Query each listed device alone: one that is lost makes the common query fail for all.

        A complaint about a device in ``lost`` says nothing about this one, which the listing could open.
        """
        found: list[Reading] = []
        for entry in listed:
            result, _ = await self._query(asking, fields, entry.uuid)
            rows = nvidia_smi.parse_table(text_of(result.stdout), fields).rows
            if rows:
                found.append(nvidia_smi.reading_of(rows[0]))
                continue
            reason, line = nvidia_smi.failure_of(said(result), result.code)
            condition = "timeout" if result.timed_out else "" if address_of(line) in lost else reason
            found.append(Reading(index=entry.index, uuid=entry.uuid, name=entry.name, condition=condition))
        return found
