"""The jobs of a batch: each is one fit, with its options and its folder."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...base.errors import InputError
from ...base.given_files import check_given_file
from ...base.units import takes_units
from ...maps.map_suffixes import SUFFIXES, map_format
from ...models.structure_suffixes import structure_format


@takes_units("resolution")
@dataclass(frozen=True)
class Job:
    """One fit.

    Attributes
    ----------
    name : str
        By which tables and reports know it.
    folder : str
        Of its results.
    model, map : str
        Files; in place of a map an MTZ file with the measured amplitudes of a crystal.
    resolution : float, optional
        Of the map, in Å; of amplitudes that to which they are used, all of them where there is none.
    seed : int
        Of velocities and noise.
    arguments : tuple of str
        Further arguments of ``openmm-density fit``, as a user types them.
    free_map : str, optional
        Another map of the same, such as the other half map, in which the result is scored.
    """

    name: str
    folder: str
    model: str
    map: str
    resolution: float | None
    seed: int = 0
    arguments: tuple[str, ...] = ()
    free_map: str | None = None

    @property
    def words(self) -> list[str]:
        """What stands behind ``openmm-density fit``, except the folder."""
        resolution = [] if self.resolution is None else ["--resolution", f"{self.resolution:.10g}"]
        return [self.model, self.map, *resolution, "--seed", str(self.seed), *self.arguments]


@takes_units("resolution")
def jobs_of(
    models: Sequence[str | os.PathLike[str]],
    maps: Sequence[str | os.PathLike[str]],
    resolution: float | None,
    output: str | os.PathLike[str],
    seeds: Sequence[int] = (0,),
    free_map: str | os.PathLike[str] | None = None,
    **options: Any,
) -> list[Job]:
    """Return the fits of every model into every map with every seed.

    Parameters
    ----------
    models, maps : sequence of path
        See `Job`.
    resolution : float, optional
        Of all maps, in Å; not needed where all are MTZ files with measured amplitudes.
    output : path
        The folder in which each fit has its own, named after what differs among them.
    seeds : sequence of int
    free_map : path, optional
        See `Job`.
    **options
        Of ``openmm-density fit``, in Python's spelling: ``protocol="quick", steps=2000``.

    Raises
    ------
    InputError
        If there is no model, map or seed, a file is not there, or one is given twice.
    """
    for name, given in (("models", models), ("maps", maps), ("seeds", seeds)):
        if not len(given):
            raise InputError("must name at least one", argument=name, remedy="give one")
        twice = [each for each, count in Counter(map(str, given)).items() if count > 1]
        if twice:
            raise InputError(f"holds {twice[0]} twice", argument=name, remedy="give each once")
    _check_files(models, [*maps, *([] if free_map is None else [free_map])])
    arguments = tuple(typed_options(options))
    model_names, map_names = _names(models), _names(maps)
    free = None if free_map is None else _absolute(free_map)
    jobs = [
        Job(
            name := _job_name(
                model_name, map_name if len(maps) > 1 else None, seed if len(seeds) > 1 else None
            ),
            str(Path(output).absolute() / name),
            _absolute(model),
            _absolute(density_map),
            None if resolution is None else float(resolution),
            int(seed),
            arguments,
            free,
        )
        for density_map, map_name in zip(maps, map_names)
        for model, model_name in zip(models, model_names)
        for seed in seeds
    ]
    check_jobs(jobs)
    return jobs


def typed_options(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield options as a user types them: a True as the option alone, of a list each entry, None and False not at all."""
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        for each in value if isinstance(value, (list, tuple)) else [value]:
            if each is True:
                yield option
            elif each is not None and each is not False:
                yield from (option, str(each))


def check_jobs(jobs: Sequence[Job]) -> None:
    """Refuse jobs whose files are not there, maps without a resolution, and jobs that share a name or a folder."""
    if not jobs:
        raise InputError("there is no job", remedy="give models and maps, or a table with a row for each")
    for attribute in ("name", "folder"):
        first: dict[str, Job] = {}
        for job in jobs:
            key = os.path.realpath(job.folder) if attribute == "folder" else job.name
            if key in first:
                raise InputError(
                    f"two jobs have the {attribute} {key}",
                    found=f"{first[key].model} and {job.model}",
                    remedy="give each one of its own",
                )
            first[key] = job
    maps = (path for job in jobs for path in (job.map, job.free_map) if path is not None)
    _check_files([job.model for job in jobs], [*maps])
    for job in jobs:
        if job.resolution is None and map_format(Path(job.map)) != "MTZ":
            raise InputError(
                "is required for a map",
                source=job.name,
                argument="resolution",
                remedy="give it; only the measured amplitudes of an MTZ file have one of their own",
            )


def _check_files(models: Sequence[str | os.PathLike[str]], maps: Sequence[str | os.PathLike[str]]) -> None:
    for path in dict.fromkeys([*models, *maps]):
        check_given_file(path, "check its path")
    for path in dict.fromkeys(models):
        structure_format(path)
    for path in dict.fromkeys(maps):
        map_format(Path(path))


def _names(paths: Sequence[str | os.PathLike[str]]) -> list[str]:
    """Return short names of files: without suffixes, and with their folder's name where they would be the same."""
    short = [_stem(Path(path).name) for path in paths]
    count = Counter(short)
    return [
        name if count[name] == 1 else f"{Path(path).absolute().parent.name}_{name}"
        for path, name in zip(paths, short)
    ]


def _stem(name: str) -> str:
    stem = name.removesuffix(".gz")
    for suffix in _SUFFIXES:
        if stem.lower().endswith(suffix) and len(stem) > len(suffix):
            return stem[: -len(suffix)]
    return stem


_SUFFIXES = (*SUFFIXES, ".pdb", ".ent", ".cif", ".mmcif")


def _job_name(model: str, density_map: str | None, seed: int | None) -> str:
    name = model if density_map is None else f"{model}_in_{density_map}"
    return name if seed is None else f"{name}_seed{seed}"


def _absolute(path: str | os.PathLike[str]) -> str:
    # A link stays one: it may be what a user changes.
    return os.path.abspath(path)
