"""Amplitudes as a crystal of a model would give them, with bulk solvent and errors: data whose truth is known."""

from __future__ import annotations

import os
from pathlib import Path

import gemmi
import numpy as np

from ...base.atomic_files import atomic_write
from ...base.errors import InputError
from ...base.wording import counted
from ...maps.mtz_columns import MeasuredColumns
from ...models.structure_text import read_structure
from .reflections import FEWEST, Reflections, made_flags
from .sigma_a import mean_squares
from .structure_factors import calculated

SOLVENT_DENSITY, SOLVENT_B = 0.35, 46.0
"""Electrons per Å³, and Å²: means over the PDB (Fokine and Urzhumtsev, Acta Cryst. 2002, D58, 1387-1392)."""
LEAST_DEVIATION = 0.01
"""Standard deviation of an amplitude without noise, in root mean squares of its resolution."""
MOST = 5_000_000
"""Reflections: a ribosome's crystal has some millions."""
COLUMNS = MeasuredColumns(("F-obs",), ("SIGF-obs",), False)
FREE_COLUMN = "R-free-flags"


def read_crystal(path: str | os.PathLike[str]) -> gemmi.Structure:
    """Return the first model of a file, which names the crystal that it is in."""
    path = Path(path)
    structure = read_structure(path)
    cell = structure.cell
    if not cell.is_crystal():
        raise InputError(
            "it names no unit cell, and only a crystal diffracts",
            source=path,
            remedy="give a model with CRYST1 (PDB) or _cell (mmCIF)",
        )
    group = gemmi.find_spacegroup_by_name(structure.spacegroup_hm, cell.alpha, cell.gamma)
    if group is None:
        raise InputError(
            "it names no space group that is known",
            source=path,
            found=repr(structure.spacegroup_hm),
            remedy='give a symbol such as "P 21 21 21" in CRYST1 or _symmetry',
        )
    structure.spacegroup_hm = group.xhm()
    structure.setup_cell_images()
    while len(structure) > 1:
        del structure[1]
    return structure


def simulated_reflections(
    structure: gemmi.Structure, resolution: float, noise: float = 0.0, seed: int = 0
) -> Reflections:
    """Return all amplitudes of a crystal up to a resolution, on the absolute scale, with free flags. `resolution` in Å."""
    cell, group = structure.cell, gemmi.SpaceGroup(structure.spacegroup_hm)
    # The half sphere of indices, shared by the operators of the point group.
    expected = 4 / 3 * np.pi * cell.volume / resolution**3 / 2 / len(group.operations().sym_ops)
    if expected > MOST:
        raise InputError(
            f"asks for about {expected:.0f} reflections of this crystal, more than {MOST}",
            argument="resolution",
            found=resolution,
            remedy="give a coarser one",
        )
    hkl = gemmi.make_miller_array(cell, group, resolution)
    hkl = np.ascontiguousarray(hkl[~group.operations().systematic_absences(hkl)], dtype=np.int32)
    if len(hkl) < FEWEST:
        raise InputError(
            f"leaves {counted(len(hkl), 'reflection')} of this crystal",
            argument="resolution",
            found=resolution,
            remedy="give a finer one",
        )
    found = calculated(structure, hkl, resolution)
    inverse_d2 = cell.calculate_1_d2_array(hkl)
    true = found.atoms + SOLVENT_DENSITY * np.exp(-SOLVENT_B * inverse_d2 / 4) * found.solvent
    centric = group.operations().centric_flag_array(hkl)
    epsilon = group.operations().epsilon_factor_without_centering_array(hkl)
    size = np.sqrt(epsilon * mean_squares(np.abs(true) / np.sqrt(epsilon), inverse_d2, inverse_d2))
    parts = np.random.default_rng(seed).normal(size=(2, len(hkl)))
    error = np.where(centric, parts[0] * np.exp(1j * np.angle(true)), (parts[0] + 1j * parts[1]) / np.sqrt(2))
    deviations = size * np.maximum(noise * np.where(centric, 1.0, np.sqrt(0.5)), LEAST_DEVIATION)
    amplitudes = np.abs(true + noise * size * error)
    return Reflections(cell, group, hkl, amplitudes, deviations, made_flags(hkl, seed), COLUMNS)


def write_amplitudes(
    model: str, path: str | os.PathLike[str], resolution: float, noise: float, seed: int
) -> Reflections:
    """Write the amplitudes of the crystal that a model's file names, and return them: see `simulated_reflections`."""
    found = simulated_reflections(read_crystal(model), resolution, noise, seed)
    write_reflections(found, path)
    return found


def write_reflections(reflections: Reflections, path: str | os.PathLike[str]) -> None:
    """Write amplitudes, deviations and free flags (1 is free) as an MTZ file, with Phenix' labels."""
    mtz = gemmi.Mtz(with_base=True)
    mtz.spacegroup = reflections.space_group
    mtz.set_cell_for_all(reflections.cell)
    mtz.add_dataset("openmm-density")
    free = np.zeros(len(reflections)) if reflections.free is None else reflections.free
    (values,), (deviations,) = COLUMNS.values, COLUMNS.deviations
    for label, kind in ((values, "F"), (deviations, "Q"), (FREE_COLUMN, "I")):
        mtz.add_column(label, kind)
    columns = reflections.hkl, reflections.amplitudes, reflections.deviations, free
    mtz.set_data(np.column_stack(columns).astype(np.float32))
    with atomic_write(Path(path)) as temporary:
        mtz.write_to_file(str(temporary))
