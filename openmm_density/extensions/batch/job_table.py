"""A table of jobs: a CSV file with a row for each fit."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ...base.errors import InputError, as_argument
from ...base.units import takes_units
from ...base.wording import listing
from ...cli.fit_arguments import defaults
from ...maps.map_suffixes import FORMATS
from .jobs import Job, check_jobs, typed_options

NEEDED = ("model", "map")
OWN = (*NEEDED, "resolution", "seed", "name", "folder", "free_map")
"""Columns that are not options of ``openmm-density fit``."""
FILES = ("reference", "restrain_to", "dictionary", "half_map", "protocol", "forcefield", "pae")
"""Options that name files, or may do so."""
_FLAGS = {"yes": True, "true": True, "no": False, "false": False}


@takes_units("resolution")
def read_jobs(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    resolution: float | None = None,
    arguments: Sequence[str] = (),
) -> list[Job]:
    """Return the jobs of a table.

    Its columns are ``model`` and ``map``, which may be an MTZ file with measured amplitudes; ``resolution``, where it is not the
    same for all, and of amplitudes where they are not all used; ``seed``, ``name``, ``folder`` and
    ``free_map``, as in `Job`; and any option of ``openmm-density fit`` by its name, as in ``strength`` or ``half-map``. Paths are
    seen from the table's folder, entries of a list are separated by semicolons, options without a value are yes or no, and an
    empty cell leaves an option out.

    Parameters
    ----------
    path : path
    output : path
        The folder in which each fit has its own, by default named as the job.
    resolution : float, optional
        In Å, of rows that say none.
    arguments : sequence of str
        Of ``openmm-density fit``, for all rows; what a row says goes before it.

    Raises
    ------
    InputError
        If it cannot be read, lacks a column, or a row is no job.
    """
    path = Path(path)
    jobs = []
    for number, row in enumerate(_rows(path), start=1):
        try:
            jobs.append(_job(row, path.parent, Path(output), number, resolution, arguments))
        except InputError as error:
            raise error.within(f"{path}, row {number}") from None
    check_jobs(jobs)
    return jobs


def _rows(path: Path) -> Iterator[dict[str, str]]:
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            columns = [name.strip() for name in reader.fieldnames or ()]
            missing = [name for name in NEEDED if name not in columns]
            if missing:
                raise InputError(
                    f"it has no column {' and none '.join(missing)}",
                    source=path,
                    found=listing(columns) or "an empty table",
                    remedy="add a first line that names its columns: model,map,resolution",
                )
            for row in reader:
                if None in row or None in row.values():
                    raise InputError(
                        "a line has not as many cells as there are columns",
                        source=path,
                        found=f"line {reader.line_num}",
                        remedy="correct it",
                    )
                yield {name.strip(): (value or "").strip() for name, value in row.items()}
    except OSError as error:
        raise InputError(
            f"it cannot be read ({error.strerror})", source=path, remedy="give a CSV file"
        ) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"it is not a CSV file ({error})", source=path, remedy="give a CSV file") from None


def _job(
    row: Mapping[str, str],
    base: Path,
    output: Path,
    number: int,
    resolution: float | None,
    arguments: Sequence[str],
) -> Job:
    missing = [name for name in NEEDED if not row[name]]
    if missing:
        raise InputError(f"its {missing[0]} is empty", remedy="give a file")
    said = row.get("resolution") or resolution
    if said is None and not Path(row["map"]).name.lower().removesuffix(".gz").endswith(FORMATS["MTZ"]):
        raise InputError(
            "there is no resolution",
            remedy=f"add a column resolution, or give {as_argument('resolution')}",
        )
    name = row.get("name") or f"{number:0{_DIGITS}d}_{Path(row['model']).name.partition('.')[0]}"
    if "/" in name or name in (".", ".."):
        raise InputError("its name must be a folder's name", found=f'"{name}"', remedy="leave out the slash")
    folder = Path(row.get("folder") or name)
    free = row.get("free_map")
    return Job(
        name,
        os.path.abspath(output / folder),
        _path(row["model"], base),
        _path(row["map"], base),
        None if said is None else _number(said, "resolution", float),
        _number(row.get("seed") or 0, "seed", int),
        (*arguments, *typed_options(_options(row, base))),
        _path(free, base) if free else None,
    )


_DIGITS = 3


def _options(row: Mapping[str, str], base: Path) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for column, cell in row.items():
        name = column.replace("-", "_")
        if name in OWN or not cell:
            continue
        parts = [part.strip() for part in cell.split(";")]
        if name in FILES:
            parts = [_path(part, base) if (base / part).exists() else part for part in parts]
        options[name] = [
            _FLAGS.get(part.lower(), part) if name in _without_value() else part for part in parts
        ]
    return options


@cache
def _without_value() -> frozenset[str]:
    return frozenset(name for name, value in defaults().items() if value is False)


def _path(text: str, base: Path) -> str:
    return os.path.abspath(base / text)


def _number(value: object, name: str, kind: type) -> Any:
    try:
        return kind(str(value))
    except ValueError:
        raise InputError("must be a number", argument=name, found=f'"{value}"', remedy="correct it") from None
