"""Contacts with symmetry mates, against OpenMM's forces in the System of all copies written out."""

from dataclasses import replace

import gemmi
import numpy as np
import openmm
import pytest
import torch
from openmm import app, unit
from scipy.spatial import cKDTree

from openmm_density import InputError, SymmetryOperators
from openmm_density.energies.contact_images import contact_images
from openmm_density.energies.forces import backend_problem
from openmm_density.energies.mate_contacts import (
    PARAMETER_NAME,
    add_symmetry_contacts,
    contacts_module,
    excluded_pairs,
    with_inverses,
)
from openmm_density.kernels.pairs import reference
from openmm_density.models import prepare

from ..contexts import context_of, energy_of, forces_of, system_of
from ..fragments import fragment
from .test_symmetry_mates import cyclic, dihedral_2, helical

needs_force = pytest.mark.skipif(
    backend_problem("NativeForce") is not None, reason=f"NativeForce: {backend_problem('NativeForce')}"
)

ASSEMBLIES = {"C2": cyclic(2), "C4": cyclic(4), "D2": dihedral_2(), "helical": helical()}

CRYSTALS = {
    "P 1 21 1": (24.0, 22.0, 26.0, 90.0, 99.0, 90.0),
    "P 1": (15.0, 16.0, 17.0, 80.0, 95.0, 105.0),
    "P 61 2 2": (37.0, 37.0, 45.0, 90.0, 90.0, 120.0),
}


class Unit:
    def __init__(self, folder, forcefield="amber14"):
        # With the charges of the force field, as the System of all has them.
        model = replace(
            prepare(fragment(folder / "model.pdb", residues=5), forcefield=forcefield), unscreened=[]
        )
        self.model = model
        self.topology = model.topology
        self.positions = model.positions - model.positions.mean(axis=0)
        self.n = len(self.positions)

    def system(self, **options):
        return self.model.system(constraints=None, **options)

    def system_of_all(self, n, **options):
        """Return the System of n copies: every force with its terms n times, by OpenMM's own force field."""
        positions = self.positions / 10 * unit.nanometer
        modeller = app.Modeller(self.topology, positions)
        for _ in range(n - 1):
            modeller.add(self.topology, positions)
        forcefield = app.ForceField("amber14-all.xml")
        arguments = dict(nonbondedMethod=app.CutoffNonPeriodic, nonbondedCutoff=1.0) | options
        return forcefield.createSystem(modeller.topology, constraints=None, removeCMMotion=False, **arguments)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return Unit(tmp_path_factory.mktemp("unit"))


@needs_force
@pytest.mark.parametrize("name", ["C2", "C4", "D2"])
@pytest.mark.parametrize("cut", [True, False])
def test_forces_are_those_in_the_system_of_all_copies(small, name, cut):
    operators, x = apart(small, name)
    n = len(operators)
    options = {} if cut else {"nonbonded_method": app.NoCutoff}
    system = small.system(**options)
    alone = energy_of(context_of(system, x))
    add_symmetry_contacts(system, small.topology, x, operators, backend="NativeForce")
    one = context_of(system, x)
    every = context_of(
        small.system_of_all(n, **({} if cut else {"nonbondedMethod": app.NoCutoff})),
        operators.expanded(x).reshape(-1, 3),
    )
    expected = forces_of(every)[: small.n]
    np.testing.assert_allclose(forces_of(one), expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    assert energy_of(one) == pytest.approx(energy_of(every) / n, rel=1e-6)
    assert abs(energy_of(one) - alone) > 0.1


@needs_force
@pytest.mark.parametrize("symbol", CRYSTALS)
def test_cells_find_what_all_pairs_of_a_crystal_show(small, symbol):
    operators, x = apart(small, symbol)
    system = small.system(nonbonded_cutoff=0.9)
    force = add_symmetry_contacts(system, small.topology, x, operators, backend="NativeForce")
    force.setForceGroup(5)
    context = context_of(system, x)
    found = forces_of(context, groups={5})
    energy, expected = pairs_by_gemmi(small, system, operators, x, 9.0)
    assert np.abs(expected).max() > 1
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    # Of terms a hundred times as large, in float32.
    assert energy_of(context, groups={5}) == pytest.approx(energy, rel=1e-6, abs=1e-4)
    module = contacts_module(system, small.topology, x, operators)
    by_all, forces = module(torch.from_numpy(x / 10), torch.ones(()))
    np.testing.assert_allclose(forces, found, rtol=0, atol=1e-9 * np.abs(found).max())
    assert float(by_all) == pytest.approx(energy_of(context, groups={5}), rel=1e-9)


def pairs_by_gemmi(small, system, operators, x, cutoff):
    """Return energy and forces of a unit by gemmi's operations and lattice, pair by pair, in plain NumPy."""
    cell, group = gemmi.UnitCell(*operators.cell), gemmi.SpaceGroup(operators.space_group)
    fractions = np.array([cell.fractionalize(gemmi.Position(*each)).tolist() for each in x])
    lattice = np.array(cell.orth.mat.tolist())
    nonbonded = next(force for force in system.getForces() if isinstance(force, openmm.NonbondedForce))
    q, s, e = np.array([[p._value for p in nonbonded.getParticleParameters(i)] for i in range(small.n)]).T
    rc, eps = 0.1 * cutoff, nonbonded.getReactionFieldDielectric()
    k, c = (eps - 1) / (2 * eps + 1) / rc**3, 3 * eps / (2 * eps + 1) / rc
    energy, forces = 0.0, np.zeros_like(x)
    for op in group.operations():
        copy = np.array([op.apply_to_xyz(list(f)) for f in fractions])
        for shift in np.stack(np.meshgrid(*[np.arange(-2, 3)] * 3), axis=-1).reshape(-1, 3):
            if op.triplet() == "x,y,z" and not shift.any():
                continue
            d = (x[:, None] - ((copy + shift) @ lattice.T)[None]) / 10
            r = np.linalg.norm(d, axis=2)
            near = r < rc
            if not near.any():
                continue
            r = np.where(near, r, 1.0)
            six = ((s[:, None] + s) / 2 / r) ** 6
            depth, charge = np.sqrt(np.outer(e, e)), 138.93545764438198 * np.outer(q, q)
            energy += 0.5 * (near * (4 * depth * (six**2 - six) + charge * (1 / r + k * r**2 - c))).sum()
            slope = 24 * depth * (2 * six**2 - six) / r**2 + charge * (r**-3 - 2 * k)
            forces += ((near * slope)[..., None] * d).sum(axis=1)
    return energy, forces


def apart(small, name):
    """Return operators and a place where the unit and its mates are near each other and do not overlap."""
    for step in range(200):
        if name in CRYSTALS:
            axes = [(1 + 0.04 * step) * axis for axis in CRYSTALS[name][:3]]
            operators = SymmetryOperators.crystal([*axes, *CRYSTALS[name][3:]], name)
            x = small.positions + np.array([0.2, 0.3, 0.15]) * axes
        else:
            operators = SymmetryOperators.from_matrices(*ASSEMBLIES[name])
            x = small.positions + step * np.array([0.8, 0.3, 0.2])
        images, _ = contact_images(with_inverses(operators), x, 10.0)
        mates = np.concatenate([x @ image[:, :3].T + image[:, 3] for image in images])
        if cKDTree(mates).query(x)[0].min() > 2.0:
            return operators, x
    raise AssertionError("there is no such place")


@needs_force
@pytest.mark.parametrize("name", ["C4", "helical", "P 1 21 1", "P 61 2 2"])
@pytest.mark.parametrize("cut", [True, False])
def test_all_ways_compute_the_same_energy(small, name, cut):
    if name in CRYSTALS and not cut:
        return  # a crystal has no end
    operators, x = apart(small, name)
    # Some nearer than any simulation has them.
    x = x + np.random.default_rng(1).normal(scale=0.3, size=x.shape)
    system = small.system(**({} if cut else {"nonbonded_method": app.NoCutoff}))
    module = contacts_module(system, small.topology, x, operators)
    positions, k = torch.from_numpy(x / 10), torch.tensor(1.5, dtype=torch.float64)
    settings = [module.switch_from, module.coulomb, module.dielectric]
    tables = module.spheres, module.images, module.excluded
    expected_energy, gradient = reference.mate_contacts(positions, *tables, module.reach, settings)
    assert float(gradient.abs().max()) > 1.0
    add_symmetry_contacts(system, small.topology, x, operators, backend="NativeForce").setForceGroup(5)
    context = context_of(system, x)
    context.setParameter(PARAMETER_NAME, 1.5)
    native = energy_of(context, groups={5}), forces_of(context, groups={5})
    for energy, forces in (native, torch.jit.script(module)(positions, k)):
        np.testing.assert_allclose(forces, -1.5 * gradient, rtol=0, atol=1.5e-5 * float(gradient.abs().max()))
        assert float(energy) == pytest.approx(1.5 * float(expected_energy), rel=1e-5, abs=1e-4)


@needs_force
def test_forces_are_the_gradient_of_the_energy_of_a_piece_of_a_helix(small):
    turned, moved = helical()
    operators = SymmetryOperators.from_matrices(turned[2:4], moved[2:4])
    _, x = apart(small, "helical")
    system = small.system(nonbonded_method=app.NoCutoff)
    add_symmetry_contacts(system, small.topology, x, operators, backend="NativeForce").setForceGroup(5)
    context = context_of(system, x)
    forces = forces_of(context, groups={5})
    # No part of the slope cancels another.
    direction = np.abs(np.random.default_rng(4).normal(size=x.shape)) * np.sign(forces)
    # Of fourth order and wide, as energies are sums in float32.
    energies = {}
    for steps in (-2, -1, 1, 2):
        context.setPositions((x + steps * 8e-3 * direction) / 10)
        energies[steps] = energy_of(context, groups={5})
    slope = (8 * (energies[1] - energies[-1]) - (energies[2] - energies[-2])) / (12 * 8e-4)
    assert slope == pytest.approx(-(forces * direction).sum(), rel=3e-4)
    context.setParameter(PARAMETER_NAME, 0.0)
    assert energy_of(context, groups={5}) == 0 and not forces_of(context, groups={5}).any()


def test_torchscript_gives_the_same(small):
    operators = SymmetryOperators.crystal(CRYSTALS["P 1 21 1"], "P 1 21 1")
    module = contacts_module(small.system(), small.topology, small.positions, operators)
    k = torch.tensor(2.0, dtype=torch.float64)
    x = torch.from_numpy(small.positions / 10)
    scripted = torch.jit.script(module)
    for found, expected in zip(scripted(x, k), module(x, k)):
        torch.testing.assert_close(found, expected)


def test_neighbours_of_an_atom_on_an_axis_do_not_interact_across_it(small):
    operators = SymmetryOperators.from_matrices(*cyclic(2))
    names = {atom.index: atom.name for atom in small.topology.atoms() if atom.residue.index == 3}
    on_axis = next(index for index, name in names.items() if name == "CA")
    x = small.positions - small.positions[on_axis] * [1, 1, 0]
    found = {tuple(each) for each in excluded_pairs(small.topology, x, operators).tolist()}
    carbonyl = next(index for index, name in names.items() if name == "C")
    beta = next(index for index, name in names.items() if name == "CB")
    assert {(on_axis, 1, on_axis), (carbonyl, 1, beta), (on_axis, 1, carbonyl)} <= found
    assert all((j, g, i) in found for i, g, j in found)
    assert not len(excluded_pairs(small.topology, x + np.array([9.0, 0, 0]), operators))
    # What never occurs together does not see each other's copies either.
    never = {
        tuple(each)
        for each in excluded_pairs(small.topology, x + np.array([9.0, 0, 0]), operators, (), [(0, 3)])
    }
    assert never == {(i, copy, j) for i, j in ((0, 3), (3, 0)) for copy in range(1, len(operators))}
    linked = excluded_pairs(small.topology, x + np.array([1.0, 0, 0]), operators, [(on_axis, on_axis)])
    assert [on_axis, 1, on_axis] in linked.tolist()


def test_what_has_no_contacts_is_refused(small):
    operators = SymmetryOperators.crystal(CRYSTALS["P 1"], "P 1")
    with pytest.raises(InputError, match="system has no NonbondedForce"):
        add_symmetry_contacts(system_of(small.n), small.topology, small.positions, operators)
    endless = small.system(nonbonded_method=app.NoCutoff)
    with pytest.raises(InputError, match="need a cut-off"):
        add_symmetry_contacts(endless, small.topology, small.positions, operators)
    periodic = small.system()
    nonbonded = next(f for f in periodic.getForces() if isinstance(f, openmm.NonbondedForce))
    nonbonded.setNonbondedMethod(openmm.NonbondedForce.PME)
    with pytest.raises(InputError, match="system is periodic"):
        add_symmetry_contacts(periodic, small.topology, small.positions, operators)
