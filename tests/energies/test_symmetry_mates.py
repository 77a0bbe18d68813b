"""A unit with its copies by operators, against the model of all copies written out."""

import gemmi
import numpy as np
import openmm
import pytest
import torch
from openmm import app

from openmm_density import DensityFit, DensityMap, EnsembleFit, InputError, SymmetryOperators
from openmm_density.energies.measures import SIMILARITIES
from openmm_density.kernels.density import density_splat

from ..fragments import fragment

RESOLUTION = 5.0

ATOMS = "name CA or name CB"

SHIFT = np.array([4.0, 9.0, 12.0])

# Symbol, cell, and voxels along x, y, z, which the operators map onto each other.
CRYSTALS = {
    "P 1": ((22.0, 25.0, 28.0, 80.0, 95.0, 105.0), (16, 18, 20)),
    "P 1 21 1": ((30.0, 26.0, 28.0, 90.0, 99.0, 90.0), (20, 18, 20)),
    "P 61 2 2": ((52.0, 52.0, 63.0, 90.0, 90.0, 120.0), (42, 42, 48)),
    "R 3 :H": ((50.0, 50.0, 60.0, 90.0, 90.0, 120.0), (36, 36, 42)),
    "R 3 :R": ((36.0, 36.0, 36.0, 85.0, 85.0, 85.0), (24, 24, 24)),
    "P 43 21 2": ((45.0, 45.0, 51.0, 90.0, 90.0, 90.0), (32, 32, 36)),
    "I 1 2 1": ((38.0, 30.0, 41.0, 90.0, 104.0, 90.0), (26, 20, 28)),
    "P 2 2 21": ((35.0, 30.0, 41.0, 90.0, 90.0, 90.0), (24, 20, 28)),
}


def rotation(axis, angle):
    x, y, z = np.array(axis) / np.linalg.norm(axis)
    K = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + np.sin(angle) * K + (1 - np.cos(angle)) * K @ K


def cyclic(n, centre=(0.0, 0.0, 0.0)):
    R = np.array([rotation((0, 0, 1), 2 * np.pi * k / n) for k in range(n)])
    return R, np.array(centre) - R @ np.array(centre)


def dihedral_2():
    axes = np.array([np.diag(signs) for signs in ([1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1])], float)
    return axes, np.zeros((4, 3))


def helical():
    steps = range(-2, 3)
    R = np.array([rotation((0, 0, 1), np.radians(70) * k) for k in steps])
    return R, np.array([[0, 0, 9.0 * k] for k in steps])


ASSEMBLIES = {"C4": cyclic(4), "D2": dihedral_2(), "helical": helical()}


class Unit:
    def __init__(self, folder):
        model = fragment(folder / "model.pdb", residues=8)
        self.topology = model.topology
        self.positions = model.positions - model.positions.mean(axis=0) + SHIFT
        noise = np.random.default_rng(2).normal(0, 0.3, self.positions.shape)
        self.moved = self.positions + noise

    def copied(self, n):
        """Return the topology of n copies."""
        positions = self.positions / 10 * openmm.unit.nanometer
        modeller = app.Modeller(self.topology, positions)
        for _ in range(n - 1):
            modeller.add(self.topology, positions)
        return modeller.topology


@pytest.fixture(scope="module")
def unit(tmp_path_factory):
    return Unit(tmp_path_factory.mktemp("unit"))


def by_gemmi(symbol, cell, positions):
    """Return the content of a cell, copy by copy, the identity first."""
    cell, group = gemmi.UnitCell(*cell), gemmi.SpaceGroup(symbol.replace(" :", ":"))
    fractions = [cell.fractionalize(gemmi.Position(*x)).tolist() for x in positions]
    copies = [
        [cell.orthogonalize(gemmi.Fractional(*op.apply_to_xyz(x))).tolist() for x in fractions]
        for op in group.operations()
    ]
    return np.array(copies)


def map_of(copies, matrix, origin, shape, periodic):
    """Return a map of wider atoms than those that are fitted, so that there are forces."""
    positions = torch.from_numpy(copies.reshape(-1, 3))
    atoms = (torch.full((len(positions), 1), each) for each in (0.02, 0.15))
    place = torch.from_numpy(matrix), torch.from_numpy(origin), list(shape[::-1])
    return DensityMap(
        density_splat(positions, *atoms, 8.0, *place, periodic).numpy(), matrix, origin, periodic
    )


def crystal_map(symbol, content):
    cell, shape = CRYSTALS[symbol]
    matrix = np.array(gemmi.UnitCell(*cell).orth.mat.tolist()) / shape
    return map_of(content, matrix, np.zeros(3), shape, True)


def finite_map(copies):
    low, high = copies.min(axis=(0, 1)) - 12, copies.max(axis=(0, 1)) + 12
    step = 1.3
    half = np.ceil(np.maximum(np.abs(low), np.abs(high)) / step).astype(int)
    half[:2] = half[:2].max()
    return map_of(copies, np.eye(3) * step, -half * step, [int(n) for n in 2 * half + 1], False)


def evaluated(fit, positions):
    strength = torch.tensor(fit.default_strength, dtype=torch.float64)
    energy, forces = fit.create_module()(torch.from_numpy(positions / 10), strength)
    return float(energy), forces.numpy()


def assert_is_one_copy(unit, density_map, operators, copies, symmetric=True, **options):
    """Compare energy and forces of the unit with those of all copies, shape (n, N, 3), written out."""
    n = len(copies)
    options = {"atoms": ATOMS, "weights": "number", "crop_margin": None, "strength": 10.0} | options
    one = DensityFit(density_map, unit.topology, RESOLUTION, operators=operators, **options)
    every = DensityFit(density_map, unit.copied(n), RESOLUTION, **options)
    energy, forces = evaluated(one, copies[0])
    energy_of_all, forces_of_all = evaluated(every, copies.reshape(-1, 3))
    assert energy == pytest.approx(energy_of_all / n, rel=1e-6)
    forces_of_all = forces_of_all.reshape(n, -1, 3)
    largest = np.abs(forces_of_all).max()
    assert largest > 0
    mean = np.einsum("gji,gnj->ni", operators.rotations, forces_of_all) / n
    np.testing.assert_allclose(forces, mean, rtol=0, atol=1e-5 * largest)
    if symmetric:
        np.testing.assert_allclose(forces, forces_of_all[0], rtol=0, atol=1e-5 * largest)


@pytest.mark.parametrize("symbol", CRYSTALS)
def test_a_unit_of_a_crystal_has_the_forces_of_one_copy_in_the_cell(unit, symbol):
    cell = CRYSTALS[symbol][0]
    target = crystal_map(symbol, by_gemmi(symbol, cell, unit.positions))
    operators = SymmetryOperators.crystal(cell, symbol)
    copies = by_gemmi(symbol, cell, unit.moved)
    np.testing.assert_allclose(operators.expanded(unit.moved)[0], unit.moved, atol=1e-9)
    found = {tuple(np.round(each[0], 6)) for each in operators.expanded(unit.moved)}
    assert found == {tuple(np.round(each[0], 6)) for each in copies}
    assert_is_one_copy(unit, target, operators, operators.expanded(unit.moved))


@pytest.mark.parametrize("name", ASSEMBLIES)
def test_a_unit_of_an_assembly_has_the_forces_of_one_copy_in_it(unit, name):
    operators = SymmetryOperators.from_matrices(*ASSEMBLIES[name])
    target = finite_map(operators.expanded(unit.positions))
    assert operators.is_group() == (name != "helical")
    assert_is_one_copy(unit, target, operators, operators.expanded(unit.moved), symmetric=name != "helical")


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_every_measure_sees_all_copies(unit, similarity):
    operators = SymmetryOperators.from_matrices(*cyclic(4))
    target = finite_map(operators.expanded(unit.positions))
    copies = operators.expanded(unit.moved)
    assert_is_one_copy(unit, target, operators, copies, similarity=similarity)


def test_forces_are_the_gradient_of_the_energy(unit):
    symbol = "P 43 21 2"
    cell = CRYSTALS[symbol][0]
    operators = SymmetryOperators.crystal(cell, symbol)
    target = crystal_map(symbol, operators.expanded(unit.positions))
    fit = DensityFit(target, unit.topology, RESOLUTION, operators=operators, atoms=ATOMS)
    _, forces = evaluated(fit, unit.moved)
    # No part of the slope cancels another.
    direction = np.abs(np.random.default_rng(4).normal(size=unit.moved.shape)) * np.sign(forces)
    step = 0.02
    ahead, behind = (evaluated(fit, unit.moved + sign * step * direction)[0] for sign in (1, -1))
    slope = (ahead - behind) / (2 * step / 10)
    assert slope == pytest.approx(-(forces * direction).sum(), rel=2e-3)


def test_torchscript_gives_the_same(unit):
    operators = SymmetryOperators.from_matrices(*cyclic(4))
    target = finite_map(operators.expanded(unit.positions))
    fit = DensityFit(target, unit.topology, RESOLUTION, operators=operators, atoms=ATOMS)
    energy, forces = evaluated(fit, unit.moved)
    scripted = torch.jit.freeze(torch.jit.script(fit.create_module().eval()))
    k = torch.tensor(fit.default_strength, dtype=torch.float64, requires_grad=True)
    found, there = scripted(torch.from_numpy(unit.moved / 10), k)
    (slope,) = torch.autograd.grad(found, k)
    assert (float(found), float(slope)) == (energy, pytest.approx(energy / fit.default_strength))
    np.testing.assert_array_equal(there, forces)


def test_a_wrapped_unit_has_the_same_forces(unit):
    symbol = "P 1 21 1"
    cell = CRYSTALS[symbol][0]
    operators = SymmetryOperators.crystal(cell, symbol)
    target = crystal_map(symbol, operators.expanded(unit.positions))
    options = dict(operators=operators, atoms=ATOMS, positions=unit.positions)
    fit = DensityFit(target, unit.topology, RESOLUTION, periodic=True, **options)
    box = torch.tensor(np.diag([6.0, 6.5, 7.0]))
    k = torch.tensor(fit.default_strength, dtype=torch.float64)
    module = fit.create_module()
    whole = module(torch.from_numpy(unit.moved / 10), box, k)
    wrapped = module(torch.from_numpy(unit.moved / 10 + [6.0, -13.0, 7.0]), box, k)
    np.testing.assert_allclose(wrapped[1], whole[1], rtol=0, atol=1e-5 * float(whole[1].abs().max()))
    _, forces = evaluated(DensityFit(target, unit.topology, RESOLUTION, **options), unit.moved)
    np.testing.assert_allclose(whole[1], forces, rtol=0, atol=1e-5 * np.abs(forces).max())


def test_a_finite_map_is_cropped_around_all_copies(unit):
    operators = SymmetryOperators.from_matrices(*cyclic(2))
    target = finite_map(operators.expanded(unit.positions))
    copies = operators.expanded(unit.moved)
    options = dict(positions=unit.positions, crop_margin=2.0, atoms="all")
    one = DensityFit(target, unit.topology, RESOLUTION, operators=operators, **options)
    alone = DensityFit(target, unit.topology, RESOLUTION, **options)
    assert one.cropped and np.prod(one.target.shape) > np.prod(alone.target.shape)
    inside = one.target.value_at(copies.reshape(-1, 3))
    assert np.isfinite(inside).all()


@pytest.mark.parametrize("occupancy, share", [(None, 0.5), (1.0, 0.5), (0.5, 1.0), (0.3, 1.0)])
def test_an_atom_on_an_axis_is_one_atom(unit, occupancy, share):
    symbol = "P 1 2 1"
    cell = (30.0, 26.0, 28.0, 90.0, 99.0, 90.0)
    operators = SymmetryOperators.crystal(cell, symbol)
    CRYSTALS[symbol] = cell, (20, 18, 20)
    positions = unit.positions.copy()
    on_axis = next(atom.index for atom in unit.topology.atoms() if atom.name == "CB")
    positions[on_axis] = [0.1, 7.0, 0.2]
    target = crystal_map(symbol, operators.expanded(positions))
    given = {"weights": "number"}
    if occupancy is not None:
        given = {"weights": "electron", "occupancies": np.full(len(positions), occupancy)}
    options = dict(operators=operators, atoms=ATOMS, **given)
    shared = DensityFit(target, unit.topology, RESOLUTION, positions=positions, **options).gaussians
    alone = DensityFit(target, unit.topology, RESOLUTION, **options).gaussians
    ratio = (shared.integrals / alone.integrals).numpy()
    fitted = DensityFit(target, unit.topology, RESOLUTION, **options).atoms
    np.testing.assert_allclose(ratio, np.where(fitted == on_axis, share, 1.0))


def test_operators_of_a_crystal_need_the_map_of_its_cell(unit):
    symbol = "P 1 21 1"
    cell = CRYSTALS[symbol][0]
    operators = SymmetryOperators.crystal(cell, symbol)
    periodic = crystal_map(symbol, operators.expanded(unit.positions))
    finite = DensityMap(periodic.data, periodic.matrix, periodic.origin, False)
    with pytest.raises(InputError, match="finite"):
        DensityFit(finite, unit.topology, RESOLUTION, operators=operators)
    other = SymmetryOperators.crystal((33.0, *cell[1:]), symbol)
    with pytest.raises(InputError, match="another one"):
        DensityFit(periodic, unit.topology, RESOLUTION, operators=other)
    with pytest.raises(InputError, match="must be SymmetryOperators, found str"):
        DensityFit(periodic, unit.topology, RESOLUTION, operators="C4")


def test_an_ensemble_has_no_operators(unit):
    operators = SymmetryOperators.from_matrices(*cyclic(2))
    target = finite_map(operators.expanded(unit.positions))
    fit = DensityFit(target, unit.topology, RESOLUTION, operators=operators)
    with pytest.raises(InputError, match="must not have operators"):
        EnsembleFit(fit, 2)
