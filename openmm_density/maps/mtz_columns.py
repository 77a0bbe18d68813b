"""Which columns of an MTZ file hold measured amplitudes or intensities, and which the free flags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import gemmi

from ..base.errors import InputError, as_argument

KINDS = {"F": ("Q", False), "J": ("Q", True), "G": ("L", False), "K": ("M", True)}
"""Types of columns of measured values: that of their deviations, and whether they are intensities; G and K of Friedel mates."""
USUAL = {
    "F": (
        "FP",
        "F",
        "FOBS",
        "F-obs-filtered",
        "F-obs",
        "F_meas",
        "F_meas_au",
        "FMEAN",
        "FNAT",
        "F_XDSdataset",
    ),
    "J": ("IMEAN", "I", "IOBS", "I-obs", "I_meas", "I-pdb", "IP"),
}
"""Labels by type, those that are taken first in front: REFMAC and CCP4, Phenix, the PDB."""
FREE_LABELS = ("FreeR_flag", "FREE", "R-free-flags", "FREER", "RFREE", "FREEFLAG", "freeR_flag", "FreeRflag")
"""Of CCP4, Phenix, SHELX and CNS."""
CALCULATED = ("FC", "FWT", "2FOFC", "FOFC", "DELFWT", "FMODEL", "F-MODEL", "FDM", "PARROT", "FAN", "DELFAN")
"""What labels of amplitudes that a program has calculated begin with."""


@dataclass(frozen=True)
class MeasuredColumns:
    """Columns of measured values."""

    values: tuple[str, ...]  # `values`, `deviations`: one label each, or two of Friedel mates.
    deviations: tuple[str, ...]
    intensities: bool  # Whether they are intensities, no amplitudes


def types_of(mtz: gemmi.Mtz, path: Path) -> dict[str, str]:
    """Return the type of each column by its label."""
    try:
        return {column.label: column.type for column in mtz.columns}
    except (RuntimeError, ValueError, TypeError):
        raise InputError(
            "the labels of its columns are not text",
            source=path,
            remedy="download it again, as it is damaged",
        ) from None


def holds_amplitudes(mtz: gemmi.Mtz, path: Path) -> bool:
    """Return whether a file has measured amplitudes or intensities."""
    return _found(types_of(mtz, path)) is not None


def measured_columns(mtz: gemmi.Mtz, path: Path, chosen: Sequence[str] | None = None) -> MeasuredColumns:
    """Return the columns of measured values: the usual ones, amplitudes before intensities, or those chosen."""
    types = types_of(mtz, path)
    available = ", ".join(f"{label} ({kind})" for label, kind in types.items())
    if chosen is None:
        found = _found(types)
        if found is None:
            raise InputError(
                f"it has no measured amplitudes or intensities; its columns are {available}",
                source=path,
                remedy=f"give a file that has them, or choose two of them with {as_argument('amplitudes')}",
            )
        return found
    if isinstance(chosen, str) or len(chosen) != 2:
        raise InputError(
            "must be two labels, of amplitudes or intensities and of their standard deviations",
            argument="amplitudes",
            found=repr(chosen),
            remedy="give labels such as FP,SIGFP",
        )
    value, deviation = chosen
    deviation_type, intensities = KINDS.get(types.get(value, ""), ("", False))
    if not deviation_type or types.get(deviation) != deviation_type:
        raise InputError(
            "must be amplitudes (type F) or intensities (type J) and their standard deviations (type Q)",
            argument="amplitudes",
            source=path,
            found=f"{value} ({types.get(value, 'not there')}) and {deviation} ({types.get(deviation, 'not there')})",
            remedy=f"choose among its columns, {available}",
        )
    return MeasuredColumns((value,), (deviation,), intensities)


def free_column(mtz: gemmi.Mtz, path: Path, chosen: str | None = None) -> str | None:
    """Return the label of the free flags; None where there are none."""
    types = types_of(mtz, path)
    if chosen is not None:
        if types.get(chosen) != "I":
            raise InputError(
                "must be a column of whole numbers (type I)",
                argument="free_flags",
                source=path,
                found=f"{chosen} ({types.get(chosen, 'not there')})",
                remedy=f"choose among {', '.join(label for label, kind in types.items() if kind == 'I') or 'others'}",
            )
        return chosen
    whole = {label.lower(): label for label, kind in types.items() if kind == "I"}
    for label in FREE_LABELS:
        if label.lower() in whole:
            return whole[label.lower()]
    return next((label for name, label in whole.items() if "free" in name), None)


def _found(types: Mapping[str, str]) -> MeasuredColumns | None:
    """Return the columns by usual names, else the first of their type with deviations, else those of Friedel mates."""
    labels = list(types)
    for kind in ("F", "J"):
        deviation_type, intensities = KINDS[kind]
        named = [label for label in USUAL[kind] if types.get(label) == kind]
        others = [
            label
            for label in labels
            if types[label] == kind and not label.upper().startswith(CALCULATED) and label not in named
        ]
        for label in (*named, *others):
            deviation = _deviation(label, deviation_type, types)
            if deviation is not None:
                return MeasuredColumns((label,), (deviation,), intensities)
    for kind in ("G", "K"):
        deviation_type, intensities = KINDS[kind]
        values = [label for label in labels if types[label] == kind][:2]
        deviations = [label for label in labels if types[label] == deviation_type][:2]
        if len(values) == len(deviations) == 2:
            return MeasuredColumns(tuple(values), tuple(deviations), intensities)
    return None


def _deviation(label: str, kind: str, types: Mapping[str, str]) -> str | None:
    """Return the label of the standard deviations of a column."""
    for name in (f"SIG{label}", f"SIGMA{label}", f"{label}_sigma", f"sig{label}"):
        if types.get(name) == kind:
            return name
    labels = list(types)
    following = labels[labels.index(label) + 1 :][:1]
    return following[0] if following and types[following[0]] == kind else None
