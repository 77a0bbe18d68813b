"""The Ramachandran restraint: what it costs, where it is flat, and that it brings a model back."""

from __future__ import annotations

import importlib.metadata
import sys
from functools import lru_cache
from pathlib import Path

import numpy as np
import openmm
import pytest
from scipy.spatial import cKDTree

from openmm_density.energies.forces import backend_problem
from openmm_density.models import Model
from openmm_density.restraints import RamachandranRestraint
from openmm_density.restraints.ramachandran import MARGIN
from openmm_density.validation.geometry import ramachandran

from ..small_models import shaken
from .single_forces import assert_forces_are_the_gradient, context_with, energy_at

needs_torch_force = pytest.mark.skipif(
    backend_problem("TorchForce") is not None, reason="TorchForce does not work here"
)


@pytest.fixture(scope="module")
def built(emd6374: Model) -> Model:
    return shaken(emd6374, 0.25)


@lru_cache
def places(plot: str, favoured: bool) -> cKDTree:
    """Read the favoured places of a table's lines, or the others, and of the plot's eight neighbours, in degrees."""
    folder = Path(importlib.metadata.distribution("pyrama").locate_file("pyrama/data"))
    rows = np.loadtxt(folder / f"pref_{plot}.data")
    chosen = rows[(rows[:, 2] >= 0.02) == favoured, :2]
    images = np.concatenate([chosen + 360.0 * np.array([i, j]) for i in (-1, 0, 1) for j in (-1, 0, 1)])
    return cKDTree(images)


def only(force: openmm.CustomCompoundBondForce, which: list[int]) -> openmm.CustomCompoundBondForce:
    """Return a force of a few of its terms."""
    kept = openmm.CustomCompoundBondForce(5, force.getEnergyFunction())
    for name in ("start", "handedness"):
        kept.addPerBondParameter(name)
    kept.addGlobalParameter(force.getGlobalParameterName(0), force.getGlobalParameterDefaultValue(0))
    table = openmm.Continuous2DFunction(*force.getTabulatedFunction(0).getFunctionParameters())
    kept.addTabulatedFunction("distance2", table)
    for k in which:
        kept.addBond(*force.getBondParameters(k))
    return kept


def test_energy_is_that_of_the_distance_to_what_is_favoured(built: Model) -> None:
    restraint = RamachandranRestraint(built.topology, built.positions, 300.0)
    force = restraint.create_force()
    assert restraint.n_terms == force.getNumBonds() == 178
    atoms = list(built.topology.atoms())
    seen, plots = set(), restraint.torsions.plots
    for k in [k for k in range(force.getNumBonds()) if plots[k] != "general" or k % 6 == 0]:
        members, _ = force.getBondParameters(k)
        energy = energy_at(context_with(only(force, [k]), len(atoms)), built.positions)
        residue, behind = atoms[members[1]].residue, atoms[members[4]].residue
        plot = {"GLY": "glycine", "PRO": "proline"}.get(
            residue.name, "preproline" if behind.name == "PRO" else "general"
        )
        phi, psi = (np.degrees(angle[k]) for angle in restraint.angles(built.positions))
        outside, within = (places(plot, favoured).query([phi, psi])[0] for favoured in (True, False))
        # What is held lies 5° within. The spline has a value every 5°, and distances are between cells of 2°.
        apart = MARGIN + (outside if outside > within else 2.0 - within)
        low, high = (max(apart + off, 0.0) for off in (-2.5, 2.5))
        assert 150 * np.radians(low) ** 2 - 0.2 <= energy <= 150 * np.radians(high) ** 2 + 0.2
        seen.add((plot, outside > 5))
    assert {(plot, False) for plot in ("general", "glycine", "proline", "preproline")} <= seen
    assert ("general", True) in seen


def test_a_good_backbone_feels_next_to_nothing(emd6374: Model, built: Model) -> None:
    def energy(model: Model) -> float:
        force = RamachandranRestraint(model.topology, model.positions).create_force()
        return energy_at(context_with(force, len(model.positions)), model.positions)

    assert energy(emd6374) < 30 < 1000 < energy(built)


def test_it_says_that_the_plot_no_longer_validates(emd6374: Model) -> None:
    (note,) = RamachandranRestraint(emd6374.topology, emd6374.positions).notes
    assert "Ramachandran" in note and "no sign of a good fit" in note


def test_violations_are_the_outliers_of_the_plot(built: Model) -> None:
    found = RamachandranRestraint(built.topology, built.positions).violations(built.positions)
    plot = ramachandran(built.topology, built.positions)
    residues = list(built.topology.residues())
    outliers = {f"{residues[i].name} {residues[i].id}" for i in plot.residues[plot.regions == "."]}
    assert {" ".join(each.residues[0].split()[-2:]) for each in found} == outliers
    assert len(found) == len(outliers) > 20
    assert found[0].value == max(each.value for each in found) > 30 and found[0].target == 0


def test_a_d_amino_acid_under_the_name_of_an_l_one_has_the_turned_plot(emd6374: Model) -> None:
    """A mirror image costs the same; glycine alone, without Cβ, is taken for what its name says."""
    # No Cα is flattened, and with 6 seeds the energy was above 10.
    model = shaken(emd6374, 0.05)
    mirrored = model.positions * [-1.0, 1.0, 1.0]
    restraint = RamachandranRestraint(model.topology, mirrored)
    as_read = RamachandranRestraint(model.topology, model.positions)
    glycine = as_read.torsions.plots == "glycine"
    np.testing.assert_array_equal(restraint.torsions.handedness, np.where(glycine, 1, -1))
    chosen = np.flatnonzero(~glycine).tolist()
    energies = [
        energy_at(context_with(only(each.create_force(), chosen), len(mirrored)), positions)
        for each, positions in ((restraint, mirrored), (as_read, model.positions))
    ]
    assert energies[0] == pytest.approx(energies[1], rel=1e-4) and energies[1] > 5
    regions = [
        ramachandran(model.topology, places).regions[~glycine] for places in (mirrored, model.positions)
    ]
    assert (regions[0] == regions[1]).mean() > 0.95


def both_forms(restraint: RamachandranRestraint) -> tuple[openmm.Context, openmm.Context]:
    count = restraint.topology.getNumAtoms()
    forces = restraint.create_force(), restraint.create_force("TorchForce")
    return tuple(context_with(force, count) for force in forces)


def forces_at(context: openmm.Context, positions: np.ndarray) -> np.ndarray:
    context.setPositions(positions / 10)
    return context.getState(forces=True).getForces(asNumpy=True)._value


@needs_torch_force
@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("displacement", [0.0, 0.25, 0.6])
def test_as_an_operator_it_has_the_energy_and_forces_of_the_expression(
    emd5925: Model, displacement: float, mirrored: bool
) -> None:
    positions = shaken(emd5925, displacement).positions if displacement else emd5925.positions
    if mirrored:
        positions = positions * [-1.0, 1.0, 1.0]
    restraint = RamachandranRestraint(emd5925.topology, positions)
    assert (np.mean(restraint.torsions.handedness) < 0) == mirrored
    expression, operator = both_forms(restraint)
    energies = [energy_at(context, positions) for context in (expression, operator)]
    forces = [forces_at(context, positions) for context in (expression, operator)]
    largest = abs(forces[0]).max()
    # They differ by the expression's spline, which is not periodic but has several periods: forces by up to 0.005, in 60 runs.
    assert energies[1] == pytest.approx(energies[0], rel=2e-4, abs=1e-3)
    assert abs(forces[1] - forces[0]).max() < 0.02 * largest
    assert np.sqrt(((forces[1] - forces[0]) ** 2).mean()) < 0.02 * np.sqrt((forces[0] ** 2).mean())


@needs_torch_force
def test_forces_of_the_operator_are_its_gradient(built: Model) -> None:
    force = RamachandranRestraint(built.topology, built.positions).create_force("TorchForce")
    assert_forces_are_the_gradient(force, built.positions, step=5e-7)


@needs_torch_force
def test_either_form_is_weakened_and_released_by_the_parameter(built: Model) -> None:
    restraint = RamachandranRestraint(built.topology, built.positions, 300.0)
    for context in both_forms(restraint):
        full, forces = energy_at(context, built.positions), forces_at(context, built.positions)
        assert context.getParameter("ramachandran_strength") == 300.0
        for scale in (0.5, 0.0, 1.0):
            context.setParameter(restraint.parameter_name, 300.0 * scale)
            assert energy_at(context, built.positions) == pytest.approx(scale * full, rel=1e-12)
            np.testing.assert_allclose(
                forces_at(context, built.positions), scale * forces, atol=1e-6 * abs(forces).max()
            )


def test_across_the_edges_of_the_plot_energy_and_force_go_on(emd6374: Model) -> None:
    values = []
    restraint = RamachandranRestraint(emd6374.topology, emd6374.positions)
    force = restraint.create_force()
    function = force.getTabulatedFunction(0)
    nx, ny, numbers, x_low, x_high, y_low, y_high = function.getFunctionParameters()
    table = np.array(numbers).reshape(ny, nx).T
    rows = len(table) // 4
    for start in range(0, len(table), rows):
        plot = table[start : start + rows]
        # 360° are 72 values: what lies beyond an edge is what lies behind the other.
        np.testing.assert_allclose(plot[: rows - 72], plot[72:], atol=1e-12)
        np.testing.assert_allclose(plot[:, : ny - 72], plot[:, 72:], atol=1e-12)
        values.append(plot.max())
    assert np.degrees(np.sqrt(max(values))) < 180 and y_high - y_low == pytest.approx(np.radians(400))
    assert x_low == 0 and x_high == pytest.approx(np.radians(5 * (len(table) - 1)))


def test_without_the_tables_nothing_is_held_and_that_is_said(
    emd6374: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyrama", None)
    restraint = RamachandranRestraint(emd6374.topology, emd6374.positions)
    assert restraint.n_terms == 0 and "pip install pyrama" in restraint.notes[0]
    assert restraint.violations(emd6374.positions) == []
    for backend in (None, "TorchForce") if backend_problem("TorchForce") is None else (None,):
        context = context_with(restraint.create_force(backend), len(emd6374.positions))
        assert energy_at(context, emd6374.positions) == 0
