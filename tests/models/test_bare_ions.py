"""Ions whose water is not in the model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import openmm
import pytest
from openmm import unit

from openmm_density.models import prepare, read_model
from openmm_density.restraints import WaterRestraint
from tests.small_models import hetatm, written


def with_magnesium(small_data: Path, path: Path, place: np.ndarray, waters: np.ndarray | None = None):
    """Return a nucleic acid with a magnesium ion at a place, and with waters around it."""
    text = (small_data / "zoo" / "104d_junction.pdb").read_text().splitlines()
    lines = [line for line in text if line.startswith("ATOM")]
    ion = hetatm(900, "MG  ", "MG", 101, place, "MG")
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
    context = openmm.Context(
        system, openmm.VerletIntegrator(0.001), openmm.Platform.getPlatformByName("Reference")
    )
    context.setPositions(prepared.positions * unit.angstrom)
    openmm.LocalEnergyMinimizer.minimize(context, 1.0, 1000)
    return context.getState(positions=True).getPositions(asNumpy=True).value_in_unit(unit.angstrom)


@pytest.mark.parametrize("distance", [2.05, 3.77])
def test_a_bare_ion_keeps_its_distances(small_data: Path, tmp_path: Path, distance: float) -> None:
    model = with_magnesium(small_data, tmp_path / "model.pdb", beside_phosphate(small_data, distance))
    prepared = prepare(model)
    ion = next(atom.index for atom in prepared.topology.atoms() if atom.name == "MG")
    assert prepared.bare_ions == [ion]
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


def test_in_water_and_with_a_whole_shell_an_ion_has_its_charge(small_data: Path, tmp_path: Path) -> None:
    place = beside_phosphate(small_data, 4.1)
    around = place + 2.1 * np.concatenate([np.eye(3), -np.eye(3)])
    whole = prepare(with_magnesium(small_data, tmp_path / "whole.pdb", place, list(around)))
    assert whole.bare_ions == []
    for solvent, charge in (("none", 0.0), ("obc", 0.0), ("gbn2", 0.0)):
        bare = prepare(with_magnesium(small_data, tmp_path / "bare.pdb", place), solvent=solvent)
        (ion,) = bare.bare_ions
        assert _charges(bare.system(), ion) == {charge}
    assert _charges(whole.system(), next(a.index for a in whole.topology.atoms() if a.name == "MG")) == {2.0}


def _charges(system: openmm.System, index: int) -> set[float]:
    found = set()
    for force in system.getForces():
        if isinstance(force, (openmm.NonbondedForce, openmm.GBSAOBCForce)):
            found.add(force.getParticleParameters(index)[0].value_in_unit(unit.elementary_charge))
        elif isinstance(force, openmm.CustomGBForce):
            names = [force.getPerParticleParameterName(k) for k in range(force.getNumPerParticleParameters())]
            found.add(force.getParticleParameters(index)[names.index("charge")])
    return found
