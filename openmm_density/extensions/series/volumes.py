"""The volumes of a series: which files, in which order, and whether they can be frames of one path."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...base.errors import InputError
from ...base.given_files import check_given_file
from ...maps.density_map import DensityMap
from ...maps.map_agreement import check_free_map
from ...maps.map_suffixes import map_format

LEAST = 2
ALIKE_SCALE = 3.0
"""Times by which the standard deviations of two volumes differ from which on it is told."""


def checked_volumes(
    maps: Sequence[str | os.PathLike[str]], free_maps: Sequence[str | os.PathLike[str]] = ()
) -> tuple[list[Path], list[Path]]:
    """Return the paths of the volumes and of their free maps, which can be a series."""
    paths, free = [Path(each) for each in maps], [Path(each) for each in free_maps]
    if len(paths) < LEAST:
        raise InputError(
            "must be two volumes or more",
            argument="maps",
            found=f"{len(paths)} of them",
            remedy="give the volumes of the series in their order, or fit the one map by openmm-density fit",
        )
    if free and len(free) != len(paths):
        raise InputError(
            f"must be as many as the {len(paths)} volumes",
            argument="free_maps",
            found=f"{len(free)} of them",
            remedy="give another map of each volume, in the same order",
        )
    for path in (*paths, *free):
        check_given_file(path, "give the path of a density map")
        map_format(path)
    seen: dict[Path, int] = {}
    for number, path in enumerate((*paths, *free), start=1):
        same = seen.setdefault(path.resolve(), number)
        if same != number:
            raise InputError(
                "it is named twice among the volumes of the series",
                source=path,
                remedy="give each volume once",
            )
    return paths, free


def order_doubt(paths: Sequence[Path]) -> str | None:
    """Return a sentence where the numbers in the names say another order than the one that was given."""
    natural = sorted(paths, key=_natural_key)
    if not all(re.search(r"\d", path.stem) for path in paths):
        return None
    if list(paths) == natural or list(paths) == natural[::-1]:
        return None
    given, other = next((a, b) for a, b in zip(paths, natural) if a != b)
    return (
        f"the volumes are taken in the order given, in which {given.name} stands where the numbers in the names would have "
        f"{other.name}: if that is not meant (a shell sorts vol_10 before vol_2), name them in their order, as by ls -v"
    )


def _natural_key(path: Path) -> list[tuple[int, int | str]]:
    parts = re.split(r"(\d+)", path.name)
    return [(0, int(part)) if part.isdigit() else (1, part) for part in parts if part]


@dataclass(frozen=True)
class VolumeFacts:
    """What is compared of a volume."""

    size: tuple[int, ...]  # Voxels along x, y and z
    voxel_size: tuple[float, ...]  # Å
    sd: float  # The standard deviation of its values
    doubt: str | None = None  # What speaks against its free map

    @classmethod
    def of(
        cls, density_map: DensityMap, free_map: DensityMap | None = None, resolution: float = np.inf
    ) -> VolumeFacts:
        """Return those of a map. `resolution` of the map, in Å; it is needed with a free map."""
        voxels = tuple(round(float(each), 4) for each in density_map.voxel_size)
        sd = float(density_map.data.std(dtype=np.float64))
        doubt = None if free_map is None else check_free_map(free_map, density_map, resolution)
        return cls(tuple(int(each) for each in density_map.size), voxels, sd, doubt)


def notes_on_volumes(paths: Sequence[Path], facts: Sequence[VolumeFacts]) -> list[str]:
    """Return a sentence on each way in which volumes differ that a series tolerates."""
    notes = []
    if len({(each.size, each.voxel_size) for each in facts}) > 1:
        first, other = next((0, n) for n, each in enumerate(facts) if _grid(each) != _grid(facts[0]))
        notes.append(
            f"The volumes have different boxes or voxels ({paths[first].name} {_in_words(facts[first])}, {paths[other].name} "
            f"{_in_words(facts[other])}): each is fitted on its own, and they are compared where they overlap."
        )
    spreads = [each.sd for each in facts]
    low, high = int(np.argmin(spreads)), int(np.argmax(spreads))
    if spreads[high] > ALIKE_SCALE * spreads[low]:
        times = f"{spreads[high] / spreads[low]:.1f} times" if spreads[low] > 0 else "far"
        notes.append(
            f"The volumes have different contrast (the values of {paths[high].name} spread {times} as much as those of "
            f"{paths[low].name}): correlations do not depend on it."
        )
    return [*notes, *(f"{path.name}: {each.doubt}" for path, each in zip(paths, facts) if each.doubt)]


def _grid(facts: VolumeFacts) -> tuple[tuple[int, ...], tuple[float, ...]]:
    return facts.size, facts.voxel_size


def _in_words(facts: VolumeFacts) -> str:
    size = " x ".join(map(str, facts.size))
    voxels = dict.fromkeys(f"{each:g}" for each in facts.voxel_size)
    return f"{size} voxels of {' x '.join(voxels)} Å"
