"""What a fit of a crystal is asked to do, as its folder records it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ...base.atomic_files import write_text
from ...base.digests import check_unchanged, digest_of
from ...base.errors import InputError, as_argument
from ...base.wording import one_line
from ...fitting.protocols import Protocol, read_protocol
from ...models.structures import read_model
from ...report.results import CRYSTAL_SETTINGS
from ..crystals import Reflections, read_reflections

PROTOCOL = "cycle.toml"


@dataclass(frozen=True)
class CrystalSettings:
    """What a fit of a crystal is asked to do; see `CrystalFit`."""

    model: str  # `model`, `data`: absolute paths.
    data: str
    protocol: Protocol  # Of one cycle
    resolution: float | None = None  # Å; that of the data where it is not given
    # `amplitudes`, `free_flags`, `free_value`: columns, and the flag of those that are held out.
    amplitudes: tuple[str, str] | None = None
    free_flags: str | None = None
    make_free_flags: bool = False
    cycles: int = 8  # At most
    free_value: int | None = None
    # Plain values, as `FlexibleFit` takes them, except ``restrain_to`` and ``reference``, which are paths
    fit_options: Mapping[str, Any] = field(default_factory=dict)
    command: str | None = field(default=None, compare=False)  # What a user types to repeat the fit

    def reflections(self) -> Reflections:
        """Return the data with free flags, up to the resolution."""
        columns = self.amplitudes, self.free_flags, self.free_value
        found = read_reflections(self.data, *columns, without_alike=self.make_free_flags)
        if found.free is not None and self.make_free_flags:
            raise InputError(
                f"is given, but the file already has free flags: {found.notes[-1].rstrip('.')}",
                argument="make_free_flags",
                source=self.data,
                remedy="leave it out: what a model was refined against can no longer be held out",
            )
        if found.free is None:
            if not self.make_free_flags:
                raise InputError(
                    "it has no free flags, without which a better model cannot be told from an overfitted one",
                    source=self.data,
                    remedy=f"give {as_argument('make_free_flags', True)}, which holds out 5% and writes the flags into the "
                    f"output, name their column with {as_argument('free_flags')}, or "
                    f"fit map coefficients, where it has them, by {as_argument('columns')}",
                )
            found = found.with_made_flags(int(self.fit_options.get("seed", 0)))
        found = found.cut(self.resolution)
        if found.free is None or not found.free.any():
            raise InputError(
                f"none of its {len(found)} reflections up to {found.resolution:.2f} Å is held out",
                source=self.data,
                remedy="give a finer resolution",
            )
        return found

    def fit_arguments(self) -> dict[str, Any]:
        """Return the arguments of a `FlexibleFit` of each cycle, models read."""
        given = dict(self.fit_options)
        for name in ("restrain_to", "reference"):
            if given.get(name) is not None:
                given[name] = read_model(given[name])
        return given

    def write(self, folder: Path) -> None:
        """Write the settings into a folder."""
        plain = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "protocol"}
        plain["sha256"] = {path: digest_of(path) for path in (self.model, self.data)}
        try:
            text = json.dumps(plain, indent=2)
        except TypeError as error:
            raise InputError(
                f"of a crystal must be plain values ({one_line(error)})",
                argument="fit_options",
                remedy="give numbers, texts and lists of them, and files by their paths",
            ) from None
        self.protocol.write(folder / PROTOCOL)
        write_text(folder / CRYSTAL_SETTINGS, text + "\n")

    @classmethod
    def read(cls, folder: Path) -> CrystalSettings:
        """Return the settings that a folder records."""
        path = folder / CRYSTAL_SETTINGS
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            digests = found.pop("sha256")
            if found["amplitudes"] is not None:
                found["amplitudes"] = tuple(found["amplitudes"])
            settings = cls(protocol=read_protocol(folder / PROTOCOL), **found)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise InputError(
                "it cannot be read, so that the fit cannot be resumed",
                source=path,
                remedy="start the fit again",
            ) from None
        check_unchanged({file: digests.get(file) for file in (settings.model, settings.data)})
        return settings
