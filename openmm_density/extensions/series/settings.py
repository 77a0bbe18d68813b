"""What a series is asked to do, as its folder records it: by it an interrupted one goes on, and its processes know what to do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ...base.atomic_files import write_text
from ...base.digests import digest_of
from ...base.errors import InputError, as_argument
from ...fitting.placement import Placement
from ...fitting.protocols import Protocol, read_protocol
from ...maps.corrections import MapCorrections
from ...maps.density_map import DensityMap
from ...report.results import SERIES_SETTINGS
from .volumes import VolumeFacts

SETTINGS = SERIES_SETTINGS
PROTOCOL_FILES = {"first": "first_protocol.toml", "next": "next_protocol.toml"}


@dataclass(frozen=True)
class SeriesSettings:
    """What a series is asked to do."""

    model: str  # The path of the model that it starts from
    # `maps`, `free_maps`: the paths of the volumes in their order, and of another map of each or none.
    maps: tuple[str, ...]
    free_maps: tuple[str, ...]
    resolution: float  # Å
    protocols: Mapping[str, Protocol]  # "first", of the first volume, and "next", of the others
    place: str = "auto"  # As for `FlexibleFit`, of the first volume
    # The volume that is fitted first, from 1; the one that the model fits best where it is None
    start_at: int | None = None
    columns: tuple[str, ...] | None = None  # Of MTZ files
    corrections: Mapping[str, Any] = field(default_factory=dict)  # As `MapCorrections` takes them
    # Further arguments of each `FlexibleFit`, as JSON can hold them
    fit_options: Mapping[str, Any] = field(default_factory=dict)

    def read_map(self, frame: int) -> DensityMap:
        """Return a volume by its number from 1, as it was read."""
        return DensityMap.from_file(self.maps[frame - 1], columns=self.columns)

    def read_free_map(self, frame: int) -> DensityMap | None:
        """Return the other map of a volume, where there are such."""
        return DensityMap.from_file(self.free_maps[frame - 1]) if self.free_maps else None

    def facts(self, frame: int, corrected: DensityMap) -> VolumeFacts:
        """Return what is compared of a volume, numbered from 1 and corrected; InputError if its free map cannot test it."""
        free = self.read_free_map(frame)
        if free is None:
            return VolumeFacts.of(corrected)
        try:
            return VolumeFacts.of(corrected, self.map_corrections().apply(free), self.resolution)
        except InputError as error:
            raise error.within(self.free_maps[frame - 1]) from None

    def map_corrections(self) -> MapCorrections:
        """Return what the volumes are corrected for."""
        given = dict(self.corrections)
        if isinstance(given.get("voxel_size"), list):
            given["voxel_size"] = tuple(given["voxel_size"])
        return MapCorrections(**given)

    def _as_dict(self) -> dict[str, Any]:
        plain = {name: value for name, value in vars(self).items() if name != "protocols"}
        plain["protocols"] = {name: protocol.as_dict() for name, protocol in self.protocols.items()}
        plain["sha256"] = {path: digest_of(path) for path in (self.model, *self.maps, *self.free_maps)}
        try:
            return json.loads(json.dumps(plain))
        except TypeError as error:
            raise InputError(
                f"of a series must be plain values ({error})",
                argument="fit_options",
                remedy="give numbers, texts and lists of them, and files by their paths",
            ) from None

    def write(self, folder: Path) -> None:
        """Write the settings into the series' folder; InputError if it has others, or one is no plain value."""
        told = self._as_dict()
        path = folder / SETTINGS
        if path.exists():
            before = _recorded(path)
            other = [name for name in told if before.get(name) != told[name]]
            if other:
                raise InputError(
                    f"it holds a series with other settings ({', '.join(other)})",
                    source=folder,
                    remedy=f"choose another folder, give its own command again, or pass {as_argument('overwrite', True)}",
                )
            return
        for name, protocol in self.protocols.items():
            protocol.write(folder / PROTOCOL_FILES[name])
        write_text(path, json.dumps(told, indent=2) + "\n")

    @classmethod
    def read(cls, folder: Path) -> SeriesSettings:
        """Return the settings that a folder records."""
        found = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        del found["sha256"]
        found["protocols"] = {name: read_protocol(folder / file) for name, file in PROTOCOL_FILES.items()}
        for name in ("maps", "free_maps", "columns"):
            found[name] = None if found[name] is None else tuple(found[name])
        return cls(**found)


@dataclass(frozen=True)
class SeriesStart:
    """Which volume is fitted first, and where in it the model is placed."""

    frame: int  # From 1
    placement: Placement | None = None  # How the model was moved there as a rigid body, where it was
    # Of the rigid model with each volume (CC mask); none where the user named the first one
    correlations: list[float] = field(default_factory=list)

    def write(self, folder: Path) -> None:
        """Write it into the folder of the series."""
        plain = asdict(self)
        write_text(folder / START, json.dumps(plain, indent=2) + "\n")

    @classmethod
    def read(cls, folder: Path) -> SeriesStart | None:
        """Return what a folder records; None where nothing is recorded yet."""
        path = folder / START
        if not path.exists():
            return None
        found = cls(**_recorded(path))
        return found if found.placement is None else replace(found, placement=Placement(**found.placement))


START = "series_start.json"


def recorded_platform(folder: Path) -> str | None:
    """Return the platform of the series that a folder records; None where there is none."""
    path = folder / SETTINGS
    return _recorded(path).get("fit_options", {}).get("platform") if path.exists() else None


def _recorded(path: Path) -> dict[str, Any]:
    """Return what a file of the folder holds."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InputError(
            "it is damaged, so that the series cannot go on",
            source=path,
            remedy=f"choose another folder, or pass {as_argument('overwrite', True)}",
        )
    return found
