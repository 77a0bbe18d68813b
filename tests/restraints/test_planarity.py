"""The planarity force, against the smallest eigenvalues of the planes' covariances differentiated by torch in float64."""

from __future__ import annotations

import copy
import itertools
import math
import warnings
from types import SimpleNamespace

import numpy as np
import openmm
import pytest
import torch
from openmm import app, unit

from openmm_density.base.errors import InputError
from openmm_density.energies.forces import BACKENDS, backend_problem, best_backend
from openmm_density.models import prepare, read_model
from openmm_density.models.chemistry.planes import planarity_report
from openmm_density.restraints import PlanarityRestraint

from ..contexts import context_of, energy_of, forces_of, system_of
from ..small_models import fragment_lines, written

PLATFORMS = [openmm.Platform.getPlatform(i).getName() for i in range(openmm.Platform.getNumPlatforms())]

KT = 300 * 8.31446261815324e-3  # kJ/mol

needs_derivatives = pytest.mark.skipif(
    best_backend() == "PythonForce", reason="PythonForce gives no derivatives by parameters"
)

TORN = """\
data_comp_LIG
loop_
_chem_comp_atom.comp_id
_chem_comp_atom.atom_id
_chem_comp_atom.type_symbol
LIG C1 C
LIG C2 C
LIG C3 C
LIG C4 C
LIG C5 C
LIG O1 O
loop_
_chem_comp_plane_atom.comp_id
_chem_comp_plane_atom.plane_id
_chem_comp_plane_atom.atom_id
_chem_comp_plane_atom.dist_esd
LIG plan-1 C1 0.01
LIG plan-1 C2 0.02
LIG plan-1 C3 0.02
LIG plan-1 C4 0.03
LIG plan-1 C5 0.05
LIG plan-2 C3 0.02
LIG plan-2 C4 0.02
LIG plan-2 C5 0.02
LIG plan-2 O1 0.02
"""


@pytest.fixture(scope="module")
def peptide(small_data, tmp_path_factory):
    """Five residues of a real model (Met, Ala, Phe, Ala, Glu) with hydrogens."""
    path = tmp_path_factory.mktemp("peptide") / "peptide.pdb"
    return prepare(read_model(written(path, fragment_lines(small_data, 1, 5))))


@pytest.fixture(scope="module")
def ligand(tmp_path_factory):
    """Six atoms, a dictionary of two planes with a σ per atom and one σ, and positions of no plane."""
    dictionary = tmp_path_factory.mktemp("ligand") / "LIG.cif"
    dictionary.write_text(TORN)
    topology = app.Topology()
    residue = topology.addResidue("LIG", topology.addChain("A"), "1")
    atoms = [
        topology.addAtom(name, app.Element.getBySymbol(name[0]), residue)
        for name in ("C1", "C2", "C3", "C4", "C5", "O1")
    ]
    for one, other in itertools.pairwise(atoms):
        topology.addBond(one, other)
    positions = np.array(
        [[0, 0, 0.2], [1.4, 0, -0.1], [2.1, 1.2, 0.3], [1.4, 2.4, -0.2], [0, 2.4, 0.1], [2.6, 3.4, 0.2]]
    )
    return SimpleNamespace(topology=topology, dictionary=dictionary, positions=positions)


def exact(restraint, positions, kT=KT):
    """E = kT Σ ½ λ₁ of Σ w (x − c)(x − c)ᵀ, and its forces, in kJ/mol and nm; independent of normals held fixed."""
    x = torch.tensor(positions / 10, dtype=torch.float64, requires_grad=True)
    energy = torch.zeros((), dtype=torch.float64)
    for plane in restraint.planes.planes:
        members = x[list(plane.atoms)]
        w = (torch.tensor(plane.sigma, dtype=torch.float64).expand(len(members)) / 10) ** -2
        centred = members - (w[:, None] * members).sum(0) / w.sum()
        energy = energy + kT * 0.5 * torch.linalg.eigvalsh(centred.T @ (w[:, None] * centred))[0]
    (gradient,) = torch.autograd.grad(energy, x)
    return float(energy.detach()), -gradient.numpy()


def distorted(positions, scale=0.1, seed=0):
    return positions + np.random.default_rng(seed).normal(scale=scale, size=positions.shape)


def positions_of(context):
    found = context.getState(positions=True).getPositions(asNumpy=True)
    return np.array(found.value_in_unit(unit.angstrom))


@needs_derivatives
@pytest.mark.parametrize(
    "platform", ["Reference", "CPU", pytest.param("OpenCL", marks=pytest.mark.opencl), "CUDA"]
)
def test_energy_and_forces_on_every_platform_with_and_without_the_derivative(peptide, platform):
    if platform not in PLATFORMS:
        pytest.skip(f"OpenMM has no {platform} platform here")
    restraint = PlanarityRestraint(peptide.topology, positions=peptide.positions)
    assert restraint.n_terms == 7  # four peptide groups, the C-terminus, Phe and Glu
    positions = distorted(peptide.positions)
    energy, forces = exact(restraint, positions)
    largest = np.abs(forces).max()
    for derivative in (None, False):
        force = restraint.create_force("TorchForce", parameter_derivative=derivative)
        assert not force.usesPeriodicBoundaryConditions()
        context = context_of(system_of(len(positions), force), positions, platform)
        assert energy_of(context) == pytest.approx(energy, rel=1e-4)
        np.testing.assert_allclose(forces_of(context), forces, rtol=0, atol=1e-4 * largest)
        np.testing.assert_allclose(forces_of(context).sum(axis=0), 0, atol=1e-3 * largest)


def test_a_sigma_per_atom_from_a_dictionary(ligand):
    restraint = PlanarityRestraint(ligand.topology, dictionaries=ligand.dictionary)
    assert restraint.n_terms == 2
    assert restraint.planes.planes[0].sigma == (0.01, 0.02, 0.02, 0.03, 0.05)
    energy, forces = exact(restraint, ligand.positions)
    context = context_of(system_of(6, restraint.create_force()), ligand.positions)
    assert energy_of(context) == pytest.approx(energy, rel=1e-5)
    np.testing.assert_allclose(forces_of(context), forces, rtol=0, atol=1e-5 * np.abs(forces).max())


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_gives_the_same(ligand, backend):
    if backend_problem(backend) is not None:
        pytest.skip(f"{backend} does not work here: {backend_problem(backend)}")
    restraint = PlanarityRestraint(ligand.topology, dictionaries=ligand.dictionary)
    energy, forces = exact(restraint, ligand.positions)
    context = context_of(system_of(6, restraint.create_force(backend)), ligand.positions)
    assert energy_of(context) == pytest.approx(energy, rel=1e-5)
    np.testing.assert_allclose(forces_of(context), forces, rtol=0, atol=1e-5 * np.abs(forces).max())


def test_sigma_temperature_and_units(peptide):
    positions = distorted(peptide.positions)

    def energy(**arguments):
        restraint = PlanarityRestraint(peptide.topology, **arguments)
        return energy_of(context_of(system_of(len(positions), restraint.create_force()), positions))

    reference = energy()
    assert energy(sigma=0.04) == pytest.approx(reference / 4, rel=1e-5)
    assert energy(sigma=0.004 * unit.nanometer) == pytest.approx(reference / 4, rel=1e-5)
    assert energy(temperature=150) == pytest.approx(reference / 2, rel=1e-5)
    assert energy(temperature=600 * unit.kelvin) == pytest.approx(reference * 2, rel=1e-5)


def test_positions_that_are_not_numbers_spare_the_other_planes(peptide):
    restraint = PlanarityRestraint(peptide.topology)
    module = restraint.create_module()
    x = torch.tensor(distorted(peptide.positions) / 10)
    _, before = module(x, torch.tensor(1.0))
    plane = next(plane for plane in restraint.planes.planes if plane.kind == "ring")
    x[plane.atoms[4]] = math.nan
    energy, after = module(x, torch.tensor(1.0))
    assert torch.isfinite(energy) and torch.isfinite(after).all()
    others = sorted(set(range(len(x))) - set(plane.atoms))
    torch.testing.assert_close(after[others], before[others])


BOXES = {
    "cubic": np.diag([2.0, 2.0, 2.0]),
    "triclinic": np.array([[2.4, 0, 0], [0.7, 2.3, 0], [-0.9, 0.8, 2.5]]),
}


@needs_derivatives
@pytest.mark.parametrize("box", BOXES.values(), ids=BOXES)
@pytest.mark.parametrize("platform", ["Reference", "CPU"])
def test_atoms_of_one_plane_in_several_molecules_may_be_wrapped_apart(ligand, box, platform):
    """A System without bonds, as that of a machine-learned potential: every atom is a molecule."""
    bonds = openmm.HarmonicBondForce()
    bonds.setUsesPeriodicBoundaryConditions(True)
    for atom in (1, 2):
        bonds.addBond(0, atom, 0.15, 0.0)
    restraint = PlanarityRestraint(
        ligand.topology, dictionaries=ligand.dictionary, system=system_of(6, bonds)
    )
    assert restraint.periodic
    force = restraint.create_force()
    assert force.usesPeriodicBoundaryConditions()
    energy, forces = exact(restraint, ligand.positions)
    rng = np.random.default_rng(4)
    for _ in range(4):
        wrapped = ligand.positions + rng.integers(-2, 3, size=(6, 3)) @ box * 10
        context = context_of(system_of(6, copy.deepcopy(force), box=box), wrapped, platform)
        assert energy_of(context) == pytest.approx(energy, rel=1e-4)
        np.testing.assert_allclose(forces_of(context), forces, rtol=0, atol=1e-4 * np.abs(forces).max())
        derivatives = context.getState(parameterDerivatives=True).getEnergyParameterDerivatives()
        assert derivatives["planarity_strength"] == pytest.approx(energy, rel=1e-4)


def test_energy_is_conserved_over_ten_picoseconds(peptide):
    restraint = PlanarityRestraint(peptide.topology)
    system = peptide.system(constraints=None, rigidWater=False, nonbonded_method=app.NoCutoff)
    system.addForce(restraint.create_force(parameter_derivative=False))
    integrator = openmm.VerletIntegrator(0.0005)
    context = context_of(system, peptide.positions, integrator=integrator)
    openmm.LocalEnergyMinimizer.minimize(context, 10, 300)
    context.setVelocitiesToTemperature(300, 1)
    integrator.step(500)
    totals, times = [], []
    for _ in range(200):
        integrator.step(100)
        state = context.getState(energy=True)
        total = state.getKineticEnergy() + state.getPotentialEnergy()
        totals.append(total.value_in_unit(unit.kilojoule_per_mole))
        times.append(state.getTime().value_in_unit(unit.picosecond))
    assert times[-1] - times[0] > 9.9
    per_atom = np.array(totals) / (KT * len(peptide.positions))
    drift = np.polyfit(times, per_atom, 1)[0] * 10
    assert abs(drift) < 0.01
    assert np.ptp(per_atom) < 0.02
    # The planes were in motion: equipartition would give ½ σ² per degree of freedom.
    assert 0.005 < restraint.planes.rms(positions_of(context)) < 0.04


def test_the_stable_time_step_separates_stable_from_unstable():
    topology = app.Topology()
    residue = topology.addResidue("PHE", topology.addChain("A"), "1")
    names = ("CB", "CG", "CD1", "CD2", "CE1", "CE2", "CZ")
    for name in names:
        topology.addAtom(name, app.element.carbon, residue)
    ring = np.array([[0.0, 2.9], [0, 1.4], [1.2, 0.7], [-1.2, 0.7], [1.2, -0.7], [-1.2, -0.7], [0, -1.4]])
    positions = np.column_stack([ring, np.random.default_rng(0).normal(scale=0.01, size=7)])
    restraint = PlanarityRestraint(topology, positions=positions)
    assert restraint.n_terms == 1
    system = system_of(7, restraint.create_force(parameter_derivative=False))
    # ω² = kT/(σ² m), and 2/ω the limit of a leapfrog integrator.
    limit = 2 * math.sqrt(0.002**2 * 12 / KT)
    assert restraint.stable_timestep(system) == pytest.approx(limit, rel=1e-6)
    for factor, is_stable in ((0.9, True), (1.1, False)):
        integrator = openmm.VerletIntegrator(factor * limit)
        context = context_of(system, positions, integrator=integrator)
        integrator.step(60)
        assert (restraint.planes.rms(positions_of(context)) < 0.1) is is_stable
    weaker = PlanarityRestraint(topology, positions=positions, force_constant=0.25)
    assert weaker.stable_timestep(system) == pytest.approx(2 * limit, rel=1e-6)
    for i in range(7):
        system.setParticleMass(i, 0.0)
    assert restraint.stable_timestep(system) == math.inf
    with pytest.raises(InputError, match="system must have the 7 atoms of the topology, found 6 particles"):
        restraint.stable_timestep(system_of(6))


def test_what_is_not_held_flat_is_told(ligand, tmp_path):
    with (
        pytest.warns(UserWarning, match="what is flat in A LIG 1 cannot be told.*dictionaries="),
        pytest.warns(UserWarning, match="no flat group"),
    ):
        restraint = PlanarityRestraint(ligand.topology)
    assert "A LIG 1" in restraint.notes[0]

    partial = app.Topology()
    residue = partial.addResidue("ASP", partial.addChain("A"), "7")
    atoms = {
        name: partial.addAtom(name, app.Element.getBySymbol(name[0]), residue) for name in ("CB", "CG", "OD1")
    }
    partial.addBond(atoms["CB"], atoms["CG"])
    partial.addBond(atoms["CG"], atoms["OD1"])
    with pytest.warns(UserWarning, match="no flat group"):
        restraint = PlanarityRestraint(partial)
    assert restraint.n_terms == 0
    assert restraint.notes == [
        "1 flat group with fewer than 4 atoms present is not held: A ASP 7 carboxylate"
    ]
    report = planarity_report(partial, restraint.planes, np.zeros((3, 3)))
    assert (report.n_planes, report.rms, report.worst) == (0, 0.0, 0.0)
    assert report.dropped == ("A ASP 7 carboxylate",)
    context = context_of(system_of(3, restraint.create_force()), np.zeros((3, 3)))
    assert energy_of(context) == 0 and not forces_of(context).any()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert PlanarityRestraint(ligand.topology, dictionaries=[ligand.dictionary]).notes == []


def test_atoms_off_their_planes_are_named(emd5925):
    restraint = PlanarityRestraint(emd5925.topology, emd5925.positions)
    ring = next(plane for plane in restraint.planes.planes if plane.kind == "ring")
    lifted = emd5925.positions.copy()
    offset = np.linalg.svd(
        emd5925.positions[list(ring.atoms)] - emd5925.positions[list(ring.atoms)].mean(axis=0)
    )[2][2]
    lifted[ring.atoms[-1]] += 2.0 * offset
    worst = restraint.violations(lifted)[0]
    name = list(emd5925.topology.atoms())[ring.atoms[-1]].name
    assert worst.residues == (ring.residue,) and worst.quantity == f"distance of {name} from its plane (ring)"
    assert (worst.restraint, worst.unit, worst.target) == ("planarity", "Å", 0.0)
    assert worst.limit == pytest.approx(5 * 0.02) and worst.value > 0.5
    assert f"is {worst.value:.2f} Å, held at 0.00 Å" in str(worst)
    # What a minimisation with it leaves is within the limit.
    assert len(restraint.violations(emd5925.positions)) < len(restraint.violations(lifted))
    assert PlanarityRestraint(emd5925.topology, emd5925.positions, sigma=1.0).violations(lifted) == []


def test_errors(ligand):
    def restraint(**arguments):
        return PlanarityRestraint(ligand.topology, **{"dictionaries": ligand.dictionary, **arguments})

    with pytest.raises(InputError, match=r"sigma must be positive, found 0: give Å, such as 0.02"):
        restraint(sigma=0)
    with pytest.raises(InputError, match="temperature must be positive, found -1"):
        restraint(temperature=-1)
    with pytest.raises(
        InputError,
        match="force_constant must be 0 or more, found nan: give a positive number, such as 1, or 0",
    ):
        restraint(force_constant=math.nan)
    with pytest.raises(InputError, match="topology has 6 atoms but system has 5 particles"):
        restraint(system=system_of(5))
    with pytest.raises(
        InputError, match="positions must be one for each of the 6 atoms of the topology, found 5"
    ):
        restraint(positions=ligand.positions[1:])
    with pytest.raises(
        InputError, match=r"topology must be an .* found a SimpleNamespace: give its \.topology"
    ):
        PlanarityRestraint(ligand)
    with pytest.raises(InputError, match="no such file"):
        restraint(dictionaries="absent.cif")
    with pytest.raises(InputError, match='backend must be a known backend, found "CudaForce"'):
        restraint().create_force("CudaForce")
