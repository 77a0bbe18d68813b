"""Charges whose water is not in the model: ions, what they bind, and the ends at gaps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import openmm
import pytest
from openmm import unit

from openmm_density.models import Prepared, prepare, read_model
from openmm_density.restraints import WaterRestraint
from tests.small_models import FRAGMENT, fragment_lines, hetatm, written

from ..contexts import context_of


def with_ion(
    small_data: Path, path: Path, place: np.ndarray, waters: np.ndarray | None = None, ion: str = "MG"
):
    """Return a nucleic acid with an ion at a place, and with waters around it."""
    text = (small_data / "zoo" / "104d_junction.pdb").read_text().splitlines()
    lines = [line for line in text if line.startswith("ATOM")]
    ion = hetatm(900, f"{ion}  ", ion, 101, place, ion)
    beside = [hetatm(901 + k, " O", "HOH", 201 + k, each, "O") for k, each in enumerate(waters or ())]
    return read_model(written(path, [*lines, ion, *beside]))


def beside_phosphate(small_data: Path, distance: float) -> np.ndarray:
    """Return a place at a distance from the oxygen of a phosphate, away from all else."""
    model = read_model(small_data / "zoo" / "104d_junction.pdb")
    place = {record.describe(): model.positions[k] for k, record in enumerate(model.records)}
    oxygen, phosphorus = place["A DT 5 OP1"], place["A DT 5 P"]
    return oxygen + distance * (oxygen - phosphorus) / np.linalg.norm(oxygen - phosphorus)


def minimised(prepared) -> np.ndarray:
    system = prepared.system(constraints=None, rigidWater=False)
    system.addForce(WaterRestraint(prepared.topology, prepared.positions).create_force())
    context = context_of(system, prepared.positions)
    openmm.LocalEnergyMinimizer.minimize(context, 1.0, 1000)
    return context.getState(positions=True).getPositions(asNumpy=True).value_in_unit(unit.angstrom)


@pytest.mark.parametrize("distance", [2.05, 3.77])
def test_a_bare_ion_keeps_its_distances(small_data: Path, tmp_path: Path, distance: float) -> None:
    model = with_ion(small_data, tmp_path / "model.pdb", beside_phosphate(small_data, distance))
    prepared = prepare(model)
    ion = next(atom.index for atom in prepared.topology.atoms() if atom.name == "MG")
    assert prepared.unscreened[-1].atoms == (ion,)
    assert any(
        "A MG 101 MG" in sentence and "no charge" in sentence for sentence in prepared.report.sentences
    )
    oxygens = [a.index for a in prepared.topology.atoms() if a.element.symbol == "O"]
    found = minimised(prepared)
    before, after = (
        np.linalg.norm(each[oxygens] - each[ion], axis=1) for each in (prepared.positions, found)
    )
    near = before < 5
    assert np.abs(after - before)[near].max() < 0.6
    assert after.min() > min(distance, 3.0) - 0.3
    # An oxygen that is bound is held as a bond.
    bound = [pair for pair in prepared.links if ion in pair]
    assert len(bound) == (distance < 3)


def test_only_in_water_an_ion_has_its_charge(small_data: Path, tmp_path: Path) -> None:
    place = beside_phosphate(small_data, 4.1)
    around = list(place + 2.1 * np.concatenate([np.eye(3), -np.eye(3)]))
    solvated = prepare(with_ion(small_data, tmp_path / "whole.pdb", place, around), solvent="water")
    assert solvated.unscreened == [] and solvated.links == []
    magnesium = prepare(with_ion(small_data, tmp_path / "water.pdb", place, around))
    ion = magnesium.unscreened[-1]
    # Its waters are held beside it, without which it falls onto the phosphate.
    assert len(magnesium.links) == 6
    assert _charges(magnesium.system(), *ion.atoms) == {0.0}
    for solvent in ("none", "obc", "gbn2"):
        bare = prepare(with_ion(small_data, tmp_path / "bare.pdb", place), solvent=solvent)
        ion = bare.unscreened[-1]
        assert _charges(bare.system(), *ion.atoms) == {0.0}


def test_the_phosphate_that_binds_an_ion_without_charge_has_none(small_data: Path, tmp_path: Path) -> None:
    model = with_ion(small_data, tmp_path / "model.pdb", beside_phosphate(small_data, 2.05))
    prepared = prepare(model, solvent="obc")
    bound = prepared.unscreened[0]
    atoms = list(prepared.topology.atoms())
    assert {atoms[k].name for k in bound.atoms} == {"P", "OP1", "OP2"}
    residue = atoms[bound.atoms[0]].residue
    system = prepared.system()
    charges = [_charge(system, atom.index) for atom in residue.atoms()]
    assert sum(charges) == pytest.approx(0.0, abs=1e-6)


def test_the_ends_at_a_gap_have_no_charge_and_those_of_the_chain_have(
    small_data: Path, tmp_path: Path
) -> None:
    lines = [*fragment_lines(small_data, 1, 4), *fragment_lines(small_data, 9, 12)]
    prepared = prepare(read_model(written(tmp_path / "gap.pdb", lines)), solvent="obc")
    assert len(prepared.report.chain_breaks) == 1
    assert [group.charge for group in prepared.unscreened] == [-1.0, 1.0]
    charges = [
        charge - SIDE_CHAINS.get(residue.name, 0)
        for residue, charge in zip(prepared.topology.residues(), _charges_of_residues(prepared))
    ]
    np.testing.assert_allclose(charges, [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -1.0], atol=1e-3)


@pytest.mark.parametrize(
    ("name", "forcefield", "left"),
    [
        (FRAGMENT, "amber14", 0.001),
        (FRAGMENT, "charmm36", 0.001),
        # Whose nucleotides at an end have the fraction that the hydroxyl of the other one lacks.
        ("zoo/104d_junction.pdb", "amber14", 0.31),
    ],
)
def test_in_a_vacuum_no_residue_has_a_charge(
    small_data: Path, name: str, forcefield: str, left: float
) -> None:
    """Lysines left their density for acids nearby (LYS 89 of 1J59 by 3.8 Å), and strands repelled each other."""
    prepared = prepare(read_model(small_data / name), forcefield, ph=5.0)
    assert len(prepared.unscreened) > 3
    np.testing.assert_allclose(_charges_of_residues(prepared), 0.0, atol=left)


SIDE_CHAINS = {"ASP": -1, "GLU": -1, "LYS": 1, "ARG": 1}


def _charges_of_residues(prepared: Prepared) -> list[float]:
    system = prepared.system()
    return [
        sum(_charge(system, atom.index) for atom in residue.atoms())
        for residue in prepared.topology.residues()
    ]


def _charge(system: openmm.System, index: int) -> float:
    force = next(each for each in system.getForces() if isinstance(each, openmm.NonbondedForce))
    return force.getParticleParameters(index)[0].value_in_unit(unit.elementary_charge)


def _charges(system: openmm.System, index: int) -> set[float]:
    found = set()
    for force in system.getForces():
        if isinstance(force, (openmm.NonbondedForce, openmm.GBSAOBCForce)):
            found.add(force.getParticleParameters(index)[0].value_in_unit(unit.elementary_charge))
        elif isinstance(force, openmm.CustomGBForce):
            names = [force.getPerParticleParameterName(k) for k in range(force.getNumPerParticleParameters())]
            found.add(force.getParticleParameters(index)[names.index("charge")])
    return found
