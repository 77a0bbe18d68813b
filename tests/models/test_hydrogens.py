"""Hydrogens that a model lacks: which, as OpenMM's Modeller has them, and where."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import openmm
import pytest
from openmm import app, unit
from scipy.spatial import cKDTree

from openmm_density.models import Prepared, prepare
from openmm_density.models.chemistry.elements import is_hydrogen
from openmm_density.models.chemistry.ideal_geometry import angles_at, bond_angles, lengths_of
from openmm_density.models.chemistry.topologies import bonded_pairs
from openmm_density.models.structures import read_model
from openmm_density.validation.all_atom_contacts import RidingHydrogens

from ..contexts import context_of, energy_of
from ..small_models import ADK_OPEN, FRAGMENT, hetatm, written

NM = unit.nanometer


def by_modeller(prepared: Prepared) -> app.Modeller:
    """Return the heavy atoms of a model with hydrogens by Modeller."""
    modeller = app.Modeller(prepared.topology, prepared.positions / 10 * NM)
    modeller.delete([atom for atom in prepared.topology.atoms() if is_hydrogen(atom)])
    modeller.addHydrogens(platform=openmm.Platform.getPlatformByName("CPU"))
    return modeller


def names_of(topology: app.Topology) -> list[list[str]]:
    return [[atom.name for atom in residue.atoms()] for residue in topology.residues()]


def energy_after(prepared: Prepared, positions: np.ndarray, iterations: int) -> float:
    context = context_of(prepared.system(constraints=None, rigidWater=False), positions, "CPU")
    openmm.LocalEnergyMinimizer.minimize(context, maxIterations=iterations)
    return energy_of(context)


@pytest.mark.parametrize("name", [FRAGMENT, "zoo/1bna_strand.pdb"], ids=["protein", "dna"])
def test_hydrogens_are_those_of_modeller_with_less_strain(small_data: Path, name: str) -> None:
    prepared = prepare(read_model(small_data / name))
    modeller = by_modeller(prepared)
    assert names_of(prepared.topology) == names_of(modeller.topology)
    theirs = np.array(modeller.positions.value_in_unit(unit.angstrom))
    assert energy_after(prepared, prepared.positions, 20) < energy_after(prepared, theirs, 20)


def test_hydrogens_have_usual_bonds_and_angles_and_do_not_clash(small_data: Path) -> None:
    prepared = prepare(read_model(small_data / ADK_OPEN))
    pairs = bonded_pairs(prepared.topology)
    light = np.array([is_hydrogen(atom) for atom in prepared.topology.atoms()])
    lengths = lengths_of(prepared.positions, pairs[light[pairs].any(axis=1)])
    assert lengths.min() > 0.95 and lengths.max() < 1.35
    triples = bond_angles(pairs)
    angles = angles_at(prepared.positions, triples[light[triples].any(axis=1)])
    assert np.mean(np.abs(angles - 112) < 14) > 0.98
    bonded = {tuple(sorted(pair)) for pair in pairs.tolist()} | {
        tuple(sorted(ends)) for ends in triples[:, [0, 2]].tolist()
    }
    near = cKDTree(prepared.positions).query_pairs(1.4)
    assert not [pair for pair in near if light[list(pair)].any() and tuple(sorted(pair)) not in bonded]


def test_what_cannot_turn_is_where_riding_hydrogens_are(small_data: Path) -> None:
    prepared = prepare(read_model(small_data / FRAGMENT))
    moved = np.linalg.norm(
        RidingHydrogens(prepared.topology).at(prepared.positions) - prepared.positions, axis=1
    )
    # But for those that were crowded.
    assert np.mean(moved < 1e-6) > 0.97


def test_one_hydrogen_of_two_waters_lies_between_them(tmp_path: Path) -> None:
    places = ([0.0, 0.0, 0.0], [2.8, 0.0, 0.0])
    lines = [hetatm(k, "O", "HOH", k, np.array(place), "O") for k, place in enumerate(places, 1)]
    prepared = prepare(read_model(written(tmp_path / "waters.pdb", [*lines, "END"])))
    oxygens = prepared.positions[::3]
    hydrogens = np.delete(prepared.positions, [0, 3], axis=0)
    apart = np.linalg.norm(hydrogens[:, None] - oxygens[None], axis=2)
    assert np.sort(apart, axis=1)[:, 0] == pytest.approx(0.96, abs=1e-6)
    assert (np.sort(apart, axis=1)[:, 1] < 2.3).sum() == 1
