"""A prepared model in a box of water and ions that has room for where its density is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import openmm
from openmm import app, unit

from ..base.errors import InputError
from ..base.units import ANGSTROM_PER_NANOMETER
from ..base.wording import one_line
from ..maps.density_map import DensityMap
from ..models.preparation import Prepared, repeatable
from ..validation.map_checks.coverage import ATOM_VOLUME

PADDING = 10.0
"""Å of water around model and density."""
IONIC_STRENGTH = 0.15
"""mol/l of NaCl, beyond what neutralises the model."""
# How far around the model (Å) its density is looked for.
REACH = 15.0


def solvated(
    prepared: Prepared,
    density_map: DensityMap,
    *,
    platform: str = "CPU",
) -> Prepared:
    """Surround a prepared model with water and ions; they come behind its own atoms.

    The box reaches `PADDING` beyond the model, and beyond the density that it may move into: of the voxels around it, the
    densest, as many as it has volume.
    """
    modeller = _in_water(prepared, _box(prepared, density_map), platform)
    positions = np.array(modeller.positions.value_in_unit(unit.angstrom))
    positions[: len(prepared.positions)] = prepared.positions  # to the last bit, which units do not keep
    added = len(positions) - len(prepared.positions)
    report = replace(prepared.report, sentences=[*prepared.report.sentences, _told(prepared, modeller)])
    return replace(
        prepared,
        topology=modeller.topology,
        positions=positions,
        input_index=np.concatenate([prepared.input_index, np.full(added, -1, dtype=np.int64)]),
        b_factors=np.concatenate([prepared.b_factors, np.zeros(added)]),
        report=report,
    )


def _box(prepared: Prepared, density_map: DensityMap) -> np.ndarray:
    """Return the sides in nm of a box about the middle of the model that holds model and density with water around them."""
    low, high = _extent(prepared, density_map)
    # Where Modeller puts the middle of the box.
    centre = (prepared.positions.min(axis=0) + prepared.positions.max(axis=0)) / 2
    return 2 * (np.maximum(high - centre, centre - low) + PADDING) / ANGSTROM_PER_NANOMETER


def _in_water(prepared: Prepared, box: np.ndarray, platform: str) -> app.Modeller:
    modeller = app.Modeller(prepared.topology, prepared.positions / ANGSTROM_PER_NANOMETER * unit.nanometer)
    residues = list(prepared.topology.residues())
    templates = {residues[index]: name for index, name in prepared.residue_templates.items()}
    try:
        with repeatable(openmm.Platform.getPlatformByName(platform)):
            modeller.addSolvent(
                prepared.forcefield,
                boxSize=openmm.Vec3(*box) * unit.nanometer,
                ionicStrength=IONIC_STRENGTH * unit.molar,
                residueTemplates=templates,
            )
    except Exception as error:  # Modeller raises bare exceptions for what the force field lacks
        raise InputError(
            f"water cannot be added ({one_line(error)})",
            source=prepared.model.path,
            remedy="give a force field with water and ions",
        ) from None
    return modeller


def _told(prepared: Prepared, modeller: app.Modeller) -> str:
    """Say what was added."""
    added = modeller.topology.getNumAtoms() - prepared.topology.getNumAtoms()
    before, after = (
        sum(residue.name == "HOH" for residue in topology.residues())
        for topology in (prepared.topology, modeller.topology)
    )
    sides = modeller.topology.getUnitCellDimensions().value_in_unit(unit.angstrom)
    return (
        f"{after - before} waters and {added - 3 * (after - before)} ions were added in a box of "
        f"{' x '.join(f'{side:.0f}' for side in sides)} Å."
    )


def _extent(prepared: Prepared, density_map: DensityMap) -> tuple[np.ndarray, np.ndarray]:
    model = prepared.positions
    low, high = model.min(axis=0), model.max(axis=0)
    nearby = density_map.crop(model, REACH)
    heavy = np.array([atom.element.symbol != "H" for atom in prepared.topology.atoms()])
    count = int(np.clip(heavy.sum() * ATOM_VOLUME / nearby.voxel_volume, 1, nearby.data.size))
    threshold = np.partition(nearby.data.ravel(), nearby.data.size - count)[-count]
    dense = np.argwhere(nearby.data >= threshold)[:, ::-1] @ nearby.matrix.T + nearby.origin
    return np.minimum(low, dense.min(axis=0)), np.maximum(high, dense.max(axis=0))
