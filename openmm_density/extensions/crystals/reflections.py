"""`Reflections`: measured amplitudes of a crystal, with the reflections that are held out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import gemmi
import numpy as np

from ...base.errors import InputError, as_argument
from ...base.units import resolution_in_angstrom, takes_units
from ...base.wording import counted, listing
from ...maps.mtz_columns import MeasuredColumns, free_column, measured_columns, types_of
from ...maps.mtz_maps import check_reflections, read_mtz, usual_map_columns
from .french_wilson import amplitudes as amplitudes_of

FEWEST = 100
"""Reflections without which nothing can be scaled."""


@dataclass(frozen=True)
class Reflections:
    """Measured amplitudes, unique under the symmetry of the crystal.

    Attributes
    ----------
    cell : gemmi.UnitCell
    space_group : gemmi.SpaceGroup
    hkl : np.ndarray of int32, shape (N, 3)
        Miller indices in gemmi's asymmetric unit.
    amplitudes, deviations : np.ndarray of float64, shape (N,)
        On any scale.
    free : np.ndarray of bool, shape (N,), optional
        Whether each is held out; None where no flags are known.
    columns : MeasuredColumns
        Where they were read from.
    notes : list of str
        What the reader decided, one sentence each.
    """

    cell: gemmi.UnitCell
    space_group: gemmi.SpaceGroup
    hkl: np.ndarray
    amplitudes: np.ndarray
    deviations: np.ndarray
    free: np.ndarray | None
    columns: MeasuredColumns
    notes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        """Return the number of reflections."""
        return len(self.hkl)

    @property
    def inverse_d2(self) -> np.ndarray:
        """1/d² of each, in Å⁻²."""
        return self.cell.calculate_1_d2_array(self.hkl)

    @property
    def resolution(self) -> float:
        """To which they reach, in Å."""
        return float(self.inverse_d2.max() ** -0.5)

    @property
    def centric(self) -> np.ndarray:
        """Whether each is centric."""
        return self.space_group.operations().centric_flag_array(self.hkl)

    @property
    def epsilon(self) -> np.ndarray:
        """How many times each is stronger by the symmetry, without centring."""
        return self.space_group.operations().epsilon_factor_without_centering_array(self.hkl)

    @property
    def work(self) -> np.ndarray:
        """Whether each is not held out."""
        return np.ones(len(self), dtype=bool) if self.free is None else ~self.free

    def selected(self, chosen: np.ndarray) -> Reflections:
        """Return those that a mask or indices choose."""
        return replace(
            self,
            hkl=np.ascontiguousarray(self.hkl[chosen]),
            amplitudes=self.amplitudes[chosen],
            deviations=self.deviations[chosen],
            free=None if self.free is None else self.free[chosen],
        )

    @takes_units("resolution")
    def cut(self, resolution: float | None) -> Reflections:
        """Return those up to a resolution in Å.

        Raises
        ------
        InputError
            If the data do not reach it, or too few are left.
        """
        if resolution is None:
            return self
        resolution = resolution_in_angstrom(resolution)
        if resolution < 0.97 * self.resolution:
            raise InputError(
                f"must be no finer than that of the data, which end at {self.resolution:.2f} Å",
                argument="resolution",
                found=resolution,
                remedy="give that of the data, or leave it out",
            )
        left = self.selected(self.inverse_d2 <= 1 / resolution**2 * (1 + 1e-9))
        if len(left) < FEWEST:
            raise InputError(
                f"leaves {counted(len(left), 'reflection')}",
                argument="resolution",
                found=resolution,
                remedy="give a finer one",
            )
        return left

    def with_made_flags(self, seed: int = 0) -> Reflections:
        """Return the same with free flags made at random."""
        free = made_flags(self.hkl, seed)
        note = f"Free flags were made: {free.sum()} of {len(free)} reflections are held out from now on."
        return replace(self, free=free, notes=[*self.notes, note])


def read_reflections(
    path: str | os.PathLike[str],
    amplitudes: Sequence[str] | None = None,
    free_flags: str | None = None,
    free_value: int | None = None,
    *,
    without_alike: bool = False,
) -> Reflections:
    """Read measured amplitudes, or intensities that become amplitudes, and free flags from an MTZ file.

    Parameters
    ----------
    path : path-like
        Merged data, compressed or not.
    amplitudes : (str, str), optional
        The columns of values and of their standard deviations; found by type and name when not given. Friedel mates are merged.
    free_flags : str, optional
        The column of the free flags; found by name when not given.
    free_value : int, optional
        The flag of those that are held out; by the conventions of the programs that set them when not given.
    without_alike : bool
        Whether flags that are all alike, and so hold out none, are taken for none; else they are refused.

    Raises
    ------
    InputError
        If it is no such file, contradicts itself, or has no such columns, or no flags that a value could be of.
    """
    path = Path(path)
    mtz = read_mtz(path)
    columns = measured_columns(mtz, path, amplitudes)
    flags = free_column(mtz, path, free_flags)
    check_reflections(mtz, path)
    notes = [] if amplitudes is not None else _map_beside(mtz, columns, path)
    mtz.ensure_asu()
    hkl = np.ascontiguousarray(mtz.make_miller_array(), dtype=np.int32)
    values, deviations = _merged(mtz, columns, notes)
    known = np.isfinite(values) & np.isfinite(deviations) & (deviations > 0) & (hkl != 0).any(axis=1)
    if not columns.intensities:
        known &= values >= 0
    if not known.any():
        raise InputError(
            f"its column {columns.values[0]} has no value with a deviation above 0",
            source=path,
            remedy=f"choose other columns with {as_argument('amplitudes')}",
        )
    free_values = None if flags is None else np.array(mtz.column_with_label(flags), dtype=np.float64)
    if free_values is not None and (unknown := known & ~np.isfinite(free_values)).any():
        notes.append(f"{counted(int(unknown.sum()), 'reflection')} without a free flag are left out.")
        known &= np.isfinite(free_values)
    absent = known & mtz.spacegroup.operations().systematic_absences(hkl)
    if absent.any():
        notes.append(f"{counted(int(absent.sum()), 'systematic absence')} left out.")
        known &= ~absent
    _check_unique(hkl[known], path)
    cell, group = mtz.get_cell(), mtz.spacegroup
    given = None if free_values is None else free_values[known]
    free = _held_out(given, flags or "", free_value, without_alike, path, notes)
    found = Reflections(cell, group, hkl[known], values[known], deviations[known], free, columns, notes)
    return _as_amplitudes(found) if columns.intensities else found


def _map_beside(mtz: gemmi.Mtz, columns: MeasuredColumns, path: Path) -> list[str]:
    """Return what to say of a file that has map coefficients beside the measured columns that are used."""
    coefficients = usual_map_columns(types_of(mtz, path))
    if coefficients is None:
        return []
    return [
        f"{path.name} has measured values ({columns.values[0]}), which are used, and map coefficients: for these give the "
        f"columns {','.join(coefficients)}."
    ]


def _held_out(
    values: np.ndarray | None,
    label: str,
    free_value: int | None,
    without_alike: bool,
    path: Path,
    notes: list[str],
) -> np.ndarray | None:
    """Return which reflections are held out by their flags; None where there are none."""
    if values is None:
        if free_value is None:
            return None
        raise InputError(
            "is given, and the file has no column of free flags",
            argument="free_value",
            source=path,
            remedy=f"give its label with {as_argument('free_flags')}, or leave it out",
        )
    if without_alike and not np.ptp(values):
        notes.append(f"{label} is the same for all reflections, so it is no free flag.")
        return None
    free, sentence = free_reflections(values, path, label, free_value)
    notes.append(sentence)
    return free


def _merged(mtz: gemmi.Mtz, columns: MeasuredColumns, notes: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return values and deviations, those of Friedel mates as their weighted mean."""
    values, deviations = (
        np.array([np.array(mtz.column_with_label(label), dtype=np.float64) for label in labels])
        for labels in (columns.values, columns.deviations)
    )
    if len(values) == 1:
        return values[0], deviations[0]
    notes.append(f"{' and '.join(columns.values)} are merged: anomalous differences are not used.")
    valid = np.isfinite(values) & np.isfinite(deviations) & (deviations > 0)
    weights = np.where(valid, 1 / np.where(valid, deviations, 1.0) ** 2, 0.0)
    total = weights.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return (weights * np.where(valid, values, 0.0)).sum(axis=0) / total, 1 / np.sqrt(total)


def _check_unique(hkl: np.ndarray, path: Path) -> None:
    if len(hkl) < FEWEST:
        raise InputError(
            f"it has {counted(len(hkl), 'measured reflection')}", source=path, remedy="give a whole data set"
        )
    if len(np.unique(hkl, axis=0)) != len(hkl):
        raise InputError(
            "it has reflections that are equal by symmetry: its data are not merged",
            source=path,
            remedy="give merged data, as AIMLESS or gemmi merge make them",
        )


def _as_amplitudes(found: Reflections) -> Reflections:
    """Return amplitudes from intensities, those that no crystal could have measured left out."""
    # What lies this far below zero is an error of the measurement, not of counting (French and Wilson, 1978).
    possible = found.amplitudes > -4 * found.deviations
    left_out = int((~possible).sum())
    notes = [
        *found.notes,
        f"Amplitudes are from {found.columns.values[0]} by the method of French and Wilson.",
    ]
    if left_out:
        notes.append(f"{counted(left_out, 'reflection')} with an intensity below -4 deviations left out.")
    found = found.selected(possible)
    values, deviations = amplitudes_of(
        found.amplitudes, found.deviations, found.inverse_d2, found.centric, found.epsilon
    )
    return replace(found, amplitudes=values, deviations=deviations, notes=notes)


MADE_FRACTION = 0.05
"""Of the reflections that are held out where flags are made."""
LARGEST_FRACTION = 0.35
"""With more of them held out than this, flags are not believed."""


def free_reflections(
    flags: np.ndarray, path: Path, label: str, value: int | None = None
) -> tuple[np.ndarray, str]:
    """Return which reflections are free, and a sentence on how their flags are read.

    Phenix, X-PLOR and CNS hold out 1 and keep 0, SHELX holds out -1 and keeps 1: where there are two values, the less frequent
    one is taken to be the free one. CCP4 numbers sets from 0 and holds out 0: of more values that is taken, else the lowest.
    `flags` (N,): whole numbers. Returns `free` bool (N,); `sentence`.
    """
    values, counts = np.unique(flags, return_counts=True)
    if len(values) < 2:
        raise InputError(
            f"all its free flags ({label}) are the same, so that none is held out",
            source=path,
            remedy=f"choose another column with {as_argument('free_flags')}, or make some with "
            f"{as_argument('make_free_flags', True)}",
        )
    meant = value
    if meant is None:
        meant = values[np.argmin(counts)] if len(values) == 2 else 0 if 0 in values else values[0]
    free = flags == meant
    if not 0 < free.mean() <= LARGEST_FRACTION:
        raise InputError(
            f"its free flags ({label}) hold out {free.mean():.0%} of the reflections if {meant:g} means free",
            source=path,
            found=f"values {listing([f'{each:g}' for each in values], 8)}",
            remedy=f"give the one that means free with {as_argument('free_value')}, or choose another column with "
            f"{as_argument('free_flags')}",
        )
    why = "" if value is not None else f" ({_convention(values, float(meant))})"
    return free, f"{label} = {meant:g} is read as free{why}: {free.sum()} of {len(free)} reflections."


def _convention(values: np.ndarray, meant: float) -> str:
    """Return by which convention a value is taken to mean free, and what takes another."""
    if meant == -1:
        return "as SHELX has it"
    if len(values) > 2 and meant != 0:
        return f"the lowest of {len(values)} sets, of which CCP4's would be 0; {as_argument('free_value')} takes another"
    if len(values) > 2 or meant == 0:
        return "as CCP4 and REFMAC have it"
    if meant == 1:
        return "as Phenix and CNS have it"
    return f"the less frequent value; {as_argument('free_value')} takes the other"


def made_flags(hkl: np.ndarray, seed: int = 0) -> np.ndarray:
    """Return which reflections (N, 3), unique under the symmetry, are free: random by their indices, whatever their order."""
    order = np.lexsort(hkl.T[::-1])
    free = np.zeros(len(hkl), dtype=bool)
    chosen = np.random.default_rng(seed).permutation(len(hkl))[: max(round(MADE_FRACTION * len(hkl)), 1)]
    free[order[chosen]] = True
    return free
