"""Geometries: thermal widths where they are known, minima, and broken molecules."""

import numpy as np
import pytest

from openmm_density.extensions.distillation.geometries import (
    BOLTZMANN,
    Soundness,
    Springs,
    conformers,
    dynamics,
    normal_mode_displacements,
    relaxed,
)
from openmm_density.extensions.distillation.molecule import ligand_of, read_molecule

CONSTANT = 2e4  # kJ/mol/nm²


def well(positions):
    return -CONSTANT * positions


def all_sound(positions):
    return np.ones(len(positions), dtype=bool)


def test_dynamics_has_the_width_of_its_temperature():
    temperatures = np.repeat([300.0, 900.0], 40)
    found, which = dynamics(well, np.zeros((80, 4, 3)), temperatures, 400, 20, 5, all_sound)
    settled = np.arange(len(found)) >= len(found) // 4
    for temperature in (300.0, 900.0):
        some = found[settled & (temperatures[which] == temperature)]
        # The step's error: BAOAB keeps the positions of a harmonic well exact.
        assert some.var() == pytest.approx(BOLTZMANN * temperature / CONSTANT, rel=0.06)


def test_dynamics_ends_copies_that_break_and_is_the_same_at_every_run():
    def first_half(positions):
        return np.arange(len(positions)) < 2

    start = np.zeros((4, 2, 3))
    one = dynamics(well, start, np.full(4, 300.0), 20, 10, 1, first_half)
    other = dynamics(well, start, np.full(4, 300.0), 20, 10, 1, first_half)
    assert one[1].tolist() == [0, 1, 0, 1]
    assert np.array_equal(one[0], other[0])


def test_minima_are_found():
    start = np.random.default_rng(0).normal(size=(3, 5, 3)) * 0.05
    assert np.abs(relaxed(well, start, 200)).max() < 1e-4


def test_springs_pull_along_their_energy_at_every_call():
    pytest.importorskip("rdkit", reason="the extra [ligands] is not installed")
    from rdkit.Chem import AllChem

    molecule = read_molecule("CC=O")
    springs = Springs(molecule)
    generator = np.random.default_rng(2)
    for _ in range(3):
        positions = molecule.GetConformer().GetPositions() + generator.normal(size=(7, 3)) * 0.05
        own = type(molecule)(molecule)
        for k, place in enumerate(positions.tolist()):
            own.GetConformer().SetAtomPosition(k, place)
        field = AllChem.MMFFGetMoleculeForceField(own, AllChem.MMFFGetMoleculeProperties(own))
        wanted = -np.array(field.CalcGrad()).reshape(7, 3) * 41.84
        np.testing.assert_allclose(springs.forces(positions[None] / 10)[0], wanted, atol=1e-6)


def test_modes_cost_the_energy_of_their_temperature():
    pytest.importorskip("rdkit", reason="the extra [ligands] is not installed")
    molecule = read_molecule("C#N")  # no soft modes
    start = conformers(molecule, 1, 1)[0]
    springs = Springs(molecule)
    drawn = normal_mode_displacements(springs, start, np.full(400, 20.0), 3)
    moves = (drawn - start).reshape(400, -1)
    energies = 0.5 * np.einsum("bi,ij,bj->b", moves, springs.hessian(start), moves)
    # Three stiff modes of HCN, one of which the bent start of a linear molecule counts among those that turn it.
    assert BOLTZMANN * 20.0 < energies.mean() < 2.2 * BOLTZMANN * 20.0


def test_torn_and_pressed_molecules_are_not_sound():
    pytest.importorskip("rdkit", reason="the extra [ligands] is not installed")
    molecule = read_molecule("CCO")
    found = conformers(molecule, 3, 1)
    is_sound = Soundness(ligand_of(molecule))
    assert is_sound(found).all()
    torn, pressed, missing = found[0].copy(), found[0].copy(), found[0].copy()
    torn[8] += 0.2
    pressed[3] = pressed[8] + 0.02
    missing[0, 0] = np.nan
    assert not is_sound(np.stack([torn, pressed, missing])).any()
    assert is_sound(found).tolist() == [True] * len(found)
