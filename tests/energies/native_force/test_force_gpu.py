"""The CUDA graph force on a GPU; how positions and forces pass also in Triton's interpreter."""

import numpy as np
import openmm
import pytest
import torch
from openmm import unit

pytest.importorskip("triton")


import gc

from openmm_density import DensityFit, DensityMap
from openmm_density.energies.forces import backend_problem
from openmm_density.energies.measures import SIMILARITIES
from openmm_density.energies.native_force import Computation, CudaGraphForce, exchange, make_force
from openmm_density.energies.native_force import force as force_module
from openmm_density.models import read_model
from openmm_density.restraints import PlanarityRestraint

from ...contexts import energy_of, forces_of, system_of
from ...fragments import fragment, write_fragment
from ..test_forces import PeriodicSpring, Spring

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")

PRECISIONS = ("single", "mixed", "double")

on_cuda = pytest.mark.skipif(
    backend_problem("CudaGraphForce") is not None,
    reason=f"CudaGraphForce: {backend_problem('CudaGraphForce')}",
)


class Slots:
    """OpenMM's memory, with so many particles of which some are taken."""

    def __init__(self, n: int, n_taken: int, dtype: torch.dtype) -> None:
        generator = np.random.default_rng(n)
        self.n, self.bytes = n, dtype.itemsize
        self.posq = torch.from_numpy(generator.random((n, 4))).to(DEVICE, dtype)
        self.particles = torch.from_numpy(generator.permutation(n)).to(DEVICE, torch.int32)
        self.taken = torch.from_numpy(np.sort(generator.choice(n, n_taken, replace=False))).to(DEVICE)
        self.rows = torch.full((n,), -1, dtype=torch.int32, device=DEVICE)
        self.rows[self.taken] = torch.arange(n_taken, dtype=torch.int32, device=DEVICE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("n", "n_taken"), [(1, 1), (1, 0), (256, 256), (700, 300)])
def test_positions_are_those_of_the_particles(dtype, n, n_taken):
    slots = Slots(n, n_taken, dtype)
    found = torch.full((n_taken, 3), float("nan"), dtype=dtype, device=DEVICE)
    exchange.take_positions(slots.posq.data_ptr(), slots.bytes, slots.particles.data_ptr(), slots.rows, found)
    by_particle = torch.empty_like(slots.posq)
    by_particle[slots.particles.long()] = slots.posq
    assert torch.equal(found, by_particle[slots.taken, :3])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("n", "n_taken"), [(1, 1), (1, 0), (256, 256), (700, 300)])
@pytest.mark.parametrize("wanted", [(1.0, 1.0), (1.0, 0.0), (0.0, 1.0), (0.0, 0.0)])
def test_what_is_wanted_is_added_and_nothing_else(dtype, n, n_taken, wanted):
    slots = Slots(n, n_taken, dtype)
    forces = 1000 * torch.randn(n_taken, 3, dtype=dtype, device=DEVICE)
    sums = torch.randint(-(10**12), 10**12, (3, n + 36), device=DEVICE)
    energy_sum = torch.tensor([2.25], dtype=dtype, device=DEVICE)
    expected = sums.clone()
    if wanted[0]:
        by_particle = torch.zeros(n, 3, dtype=dtype, device=DEVICE)
        by_particle[slots.taken] = forces
        expected[:, :n] += (by_particle[slots.particles.long()] * 2**32).to(torch.int64).T
    exchange.give(
        forces,
        torch.tensor(5.5, dtype=torch.float64, device=DEVICE),
        None,
        torch.tensor(wanted, dtype=torch.float64, device=DEVICE),
        slots.rows,
        slots.particles.data_ptr(),
        exchange.Sums(sums.data_ptr(), n + 36, energy_sum.data_ptr(), slots.bytes),
    )
    assert torch.equal(sums, expected)
    assert energy_sum.item() == (7.75 if wanted[1] else 2.25)


def context_on_cuda(system, positions, precision="mixed", integrator=None):
    context = openmm.Context(
        system,
        integrator or openmm.VerletIntegrator(0.001),
        openmm.Platform.getPlatformByName("CUDA"),
        {"Precision": precision, "DeterministicForces": "true"},
    )
    context.setPositions(positions)
    return context


def some_positions(n: int) -> np.ndarray:
    return np.random.default_rng(3).random((n, 3)) * 2


@on_cuda
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("particles", [None, [0, 1, 5, 99, 1000]])
def test_energy_and_forces_are_the_modules(precision, particles):
    positions = some_positions(1001)
    chosen = np.arange(1001) if particles is None else np.array(particles)
    force = make_force(Computation(Spring(), None if particles is None else chosen, False), "k", 2.5)
    context = context_on_cuda(system_of(1001, force), positions, precision)
    for strength in (2.5, 7.0, 0.0, -1.0):
        context.setParameter("k", strength)
        expected = np.zeros_like(positions)
        expected[chosen] = -2 * strength * positions[chosen]
        assert energy_of(context) == pytest.approx(strength * (positions[chosen] ** 2).sum(), rel=1e-6)
        np.testing.assert_allclose(forces_of(context), expected, rtol=1e-6, atol=1e-6)


@on_cuda
@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_box_reaches_the_module_when_it_changes(precision):
    positions = some_positions(10)
    force = make_force(Computation(PeriodicSpring(), None, True), "k", 2.5)
    bonded = openmm.HarmonicBondForce()
    bonded.setUsesPeriodicBoundaryConditions(True)
    box = np.array([[3.0, 0, 0], [0.5, 3.1, 0], [-0.4, 0.6, 3.2]])
    context = context_on_cuda(system_of(10, force, bonded, box=box), positions, precision)
    for scale in (1.0, 1.1):
        context.setPeriodicBoxVectors(*(scale * box))
        away = positions - scale * box.sum(axis=0)
        assert energy_of(context) == pytest.approx(2.5 * (away**2).sum(), rel=1e-6)
        np.testing.assert_allclose(forces_of(context), -5 * away, rtol=1e-5)


@on_cuda
def test_several_forces_act_together_and_in_any_combination():
    positions = np.stack(np.meshgrid(*[0.3 * np.arange(9.0)] * 3), axis=-1).reshape(-1, 3)
    n = len(positions)
    strengths = {"a": 2.5, "b": 40.0, "c": -7.0}
    taken = {"a": None, "b": np.arange(0, n, 3), "c": np.arange(100, 200)}
    system, alone = system_of(n), {}
    for group, (name, strength) in enumerate(strengths.items(), start=1):
        force = make_force(Computation(Spring(), taken[name], False), name, strength)
        force.setForceGroup(group)
        system.addForce(force)
        chosen = slice(None) if taken[name] is None else taken[name]
        alone[group] = np.zeros_like(positions)
        alone[group][chosen] = -2 * strength * positions[chosen]
    nonbonded = openmm.NonbondedForce()
    for _ in range(n):
        nonbonded.addParticle(0.01, 0.25, 0.5)
    nonbonded.setNonbondedMethod(openmm.NonbondedForce.CutoffNonPeriodic)
    system.addForce(nonbonded)
    context = context_on_cuda(system, positions)
    others = forces_of(context, groups={0})
    scale = abs(others).max()
    for groups in ({1}, {3}, {1, 2}, {2, 3}, {1, 2, 3}, {1}, {0, 1, 3}, {0, 1, 2, 3}):
        expected = sum(others if group == 0 else alone[group] for group in groups)
        np.testing.assert_allclose(
            forces_of(context, groups=groups), expected, rtol=1e-5, atol=1e-6 * (scale if 0 in groups else 1)
        )
        energies = [energy_of(context, groups={group}) for group in groups]
        assert energy_of(context, groups=groups) == pytest.approx(sum(energies), rel=1e-6)


@on_cuda
def test_forces_that_do_not_add_atomically_are_not_disturbed():
    n = 5000
    positions = some_positions(n)
    moved = openmm.RMSDForce(positions[::-1], list(range(n)))
    pull = openmm.CustomCVForce("1e4*rmsd")
    pull.addCollectiveVariable("rmsd", moved)
    pull.setForceGroup(3)
    system = system_of(n, pull)
    for group, name in ((1, "a"), (2, "b")):
        force = make_force(Computation(Spring(), None, False), name, 20.0 * group)
        force.setForceGroup(group)
        system.addForce(force)
    context = context_on_cuda(system, positions)
    expected = forces_of(context, groups={3}) - 120.0 * positions
    for _ in range(20):
        np.testing.assert_allclose(forces_of(context), expected, rtol=1e-5, atol=1e-4)


@on_cuda
def test_steps_beside_openmms_own_kernels_are_the_same_bits_each_time():
    positions = np.stack(np.meshgrid(*[0.25 * np.arange(14.0)] * 3), axis=-1).reshape(-1, 3)
    n = len(positions)

    def run() -> tuple[np.ndarray, np.ndarray]:
        system = system_of(n)
        for name, strength in (("a", 30.0), ("b", 60.0)):
            system.addForce(make_force(Computation(Spring(), None, False), name, strength))
        nonbonded = openmm.NonbondedForce()
        for _ in range(n):
            nonbonded.addParticle(0.0, 0.2, 0.5)
        nonbonded.setNonbondedMethod(openmm.NonbondedForce.CutoffNonPeriodic)
        system.addForce(nonbonded)
        integrator = openmm.LangevinMiddleIntegrator(300, 1, 0.001)
        integrator.setRandomNumberSeed(3)
        context = context_on_cuda(system, positions, integrator=integrator)
        context.setVelocitiesToTemperature(300, 5)
        for step in range(200):
            # Each takes another way to the GPU: parameters that change, and energies.
            if step % 20 == 0:
                context.setParameter("b", 60.0 + step)
            if step % 30 == 0:
                energy_of(context)
            integrator.step(1)
        state = context.getState(positions=True, velocities=True)
        return state.getPositions(asNumpy=True)._value, state.getVelocities(asNumpy=True)._value

    for first, again in zip(run(), run()):
        assert np.isfinite(first).all()
        np.testing.assert_array_equal(first, again)


@on_cuda
def test_two_contexts_of_one_system_do_not_disturb_each_other():
    system = system_of(50, make_force(Computation(Spring(), None, False), "k", 2.5))
    first, second = some_positions(50), some_positions(50)[::-1].copy()
    contexts = [context_on_cuda(system, first), context_on_cuda(system, second)]
    contexts[1].setParameter("k", 4.0)
    for _ in range(3):
        np.testing.assert_allclose(forces_of(contexts[0]), -5 * first, rtol=1e-6)
        np.testing.assert_allclose(forces_of(contexts[1]), -8 * second, rtol=1e-6)
    contexts.pop(0)
    gc.collect()
    np.testing.assert_allclose(forces_of(contexts[0]), -8 * second, rtol=1e-6)


@on_cuda
def test_a_context_takes_its_recording_along():
    gc.collect()
    before = set(force_module._recordings)
    context = context_on_cuda(
        system_of(5, make_force(Computation(Spring(), None, False), "k", 2.5)), some_positions(5)
    )
    energy_of(context)
    assert len(set(force_module._recordings) - before) == 1
    context.reinitialize()
    context.setPositions(some_positions(5))
    energy_of(context)
    assert len(set(force_module._recordings) - before) == 1
    del context
    gc.collect()
    assert set(force_module._recordings) <= before


@on_cuda
def test_the_minimiser_goes_to_the_cpu_where_forces_are_too_large():
    # Beyond what OpenMM's integers hold, and beside a bond that is not.
    force = make_force(Computation(Spring(), None, False), "k", 1e9)
    positions = np.array([[50.0, 0, 0], [0, 60.0, 0]])
    context = context_on_cuda(system_of(2, force), positions)
    openmm.LocalEnergyMinimizer.minimize(context, maxIterations=200)
    assert np.isfinite(energy_of(context))
    assert energy_of(context) < 1e9 * (50.0**2 + 60.0**2) * 1e-3


@on_cuda
def test_parameters_that_change_at_every_evaluation_arrive():
    positions = some_positions(3)
    context = context_on_cuda(
        system_of(3, make_force(Computation(Spring(), None, False), "k", 2.5)), positions
    )
    # More often than they have room.
    for strength in np.linspace(-3, 3, 200):
        context.setParameter("k", strength)
        np.testing.assert_allclose(forces_of(context), -2 * strength * positions, rtol=1e-5, atol=1e-6)


class InParallel(torch.nn.Module):
    """E = Σ k_i Σ x² over quarters of the particles, each in a stream of its own."""

    def forward(self, positions: torch.Tensor, strengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        present = torch.cuda.current_stream()
        energies, forces = [], []
        for i, quarter in enumerate(positions.chunk(4)):
            stream = torch.cuda.Stream()
            stream.wait_stream(present)
            with torch.cuda.stream(stream):
                energies.append(strengths[i] * (quarter.to(torch.float64) ** 2).sum())
                forces.append(-2 * strengths[i].to(positions) * quarter)
            present.wait_stream(stream)
        return torch.stack(energies).sum(), torch.cat(forces)


@on_cuda
def test_parallel_branches_and_several_strengths():
    positions = some_positions(4000)
    names = [f"k_{i}" for i in range(4)]
    force = make_force(Computation(InParallel(), None, False, 4), names, [1.0, 2.0, 3.0, 4.0])
    context = context_on_cuda(system_of(4000, force), positions)
    for strengths in ([1.0, 2.0, 3.0, 4.0], [0.0, 5.0, 2.0, 1.0]):
        for name, strength in zip(names, strengths):
            context.setParameter(name, strength)
        k = np.repeat(strengths, 1000)[:, None]
        assert energy_of(context) == pytest.approx((k * positions**2).sum(), rel=1e-5)
        np.testing.assert_allclose(forces_of(context), -2 * k * positions, rtol=1e-5, atol=1e-6)


class Raising(torch.nn.Module):
    def forward(self, positions: torch.Tensor, strength: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        raise ValueError("this module is made to fail")


@on_cuda
def test_what_goes_wrong_in_python_is_said_by_openmm():
    context = context_on_cuda(
        system_of(5, make_force(Computation(Raising(), None, False), "k", 2.5)), some_positions(5)
    )
    with pytest.raises(openmm.OpenMMException, match="this module is made to fail"):
        energy_of(context)
    too_many = make_force(Computation(Spring(), np.array([7]), False), "k", 2.5)
    context = context_on_cuda(system_of(5, too_many), some_positions(5))
    with pytest.raises(openmm.OpenMMException, match="an atom 7, but the System has 5 particles"):
        energy_of(context)


@on_cuda
@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("periodic", [False, True])
def test_density_and_planarity_are_those_of_their_modules(tmp_path, similarity, periodic):
    model = fragment(tmp_path / "model.pdb", residues=12)
    topology, positions = model.topology, model.positions
    density_map = DensityMap.simulate(topology, positions, 4.0, 1.0)
    moved = positions + np.random.default_rng(1).normal(0, 0.3, positions.shape)
    n = len(positions)
    plain = system_of(n, box=np.eye(3) * 8 if periodic else None)
    if periodic:
        bonded = openmm.HarmonicBondForce()
        bonded.setUsesPeriodicBoundaryConditions(True)
        for a, b in topology.bonds():
            bonded.addBond(a.index, b.index, 0.15, 0.0)
        plain.addForce(bonded)
    fit = DensityFit(
        density_map, topology, 4.0, similarity=similarity, system=plain, positions=positions, force_group=1
    )
    planes = PlanarityRestraint(topology, positions=positions, force_group=2, system=plain)
    for force in (fit, planes):
        plain.addForce(force.create_force("CudaGraphForce"))
    assert fit.periodic == periodic
    for precision in PRECISIONS:
        context = context_on_cuda(plain, moved / 10, precision)
        # Where OpenMM has put them.
        at = context.getState(positions=True).getPositions(asNumpy=True)._value
        for group, energy, strength in ((1, fit, fit.default_strength), (2, planes, planes.force_constant)):
            inputs = [torch.from_numpy(np.array(at))]
            if energy.periodic:
                inputs.append(torch.eye(3, dtype=torch.float64) * 8)
            expected, gradient = energy.create_module()(*inputs, torch.tensor(strength))
            found = forces_of(context, groups={group})
            assert energy_of(context, groups={group}) == pytest.approx(float(expected), rel=2e-5, abs=1e-3)
            largest = float(gradient.abs().max())
            np.testing.assert_allclose(found, gradient.numpy(), rtol=0, atol=1e-4 * largest)
            again = forces_of(context, groups={group})
            np.testing.assert_array_equal(found, again)


def in_water(folder, method):
    """Return the System of a peptide in a box of water, its topology, positions (Å) and a density for it."""
    model = read_model(write_fragment(folder / "model.pdb", residues=12, terminus=True))
    modeller = openmm.app.Modeller(model.topology, model.positions / 10)
    forcefield = openmm.app.ForceField("amber14-all.xml", "amber14/tip3p.xml")
    modeller.addHydrogens(forcefield)
    modeller.addSolvent(forcefield, padding=0.8 * unit.nanometer)
    system = forcefield.createSystem(
        modeller.topology, nonbondedMethod=method, nonbondedCutoff=0.7 * unit.nanometer, removeCMMotion=False
    )
    places = np.array(modeller.positions.value_in_unit(unit.angstrom))
    fit = DensityFit(
        DensityMap.simulate(model.topology, model.positions, 4.0, 1.0),
        modeller.topology,
        4.0,
        atoms="protein and element != H",
        system=system,
        positions=places,
        force_group=1,
    )
    return system, modeller.topology, places, fit


@on_cuda
def test_atoms_that_openmm_reorders_keep_their_forces(tmp_path):
    """Water and peptide in a box: OpenMM sorts molecules in space and wraps them as they move."""
    system, _, places, fit = in_water(tmp_path, openmm.app.PME)
    system.addForce(fit.create_force("CudaGraphForce"))
    # Unequal in time: the density at every third step.
    integrator = openmm.MTSLangevinIntegrator(300, 1, 0.003, [(1, 1), (0, 3)])
    context = context_on_cuda(system, places / 10, integrator=integrator)
    openmm.LocalEnergyMinimizer.minimize(context, maxIterations=20)
    module = fit.create_module()
    for _ in range(3):
        integrator.step(200)
        state = context.getState(positions=True, enforcePeriodicBox=False)
        at = torch.from_numpy(np.array(state.getPositions(asNumpy=True)._value))
        box = torch.from_numpy(np.array([list(v) for v in state.getPeriodicBoxVectors()._value]))
        expected, gradient = module(at, box, torch.tensor(fit.default_strength))
        found = forces_of(context, groups={1})
        np.testing.assert_allclose(found, gradient.numpy(), rtol=0, atol=2e-4 * float(gradient.abs().max()))
        assert energy_of(context, groups={1}) == pytest.approx(float(expected), rel=1e-4)


@on_cuda
@pytest.mark.parametrize("method", [openmm.app.PME, openmm.app.Ewald])
def test_derivatives_are_the_slopes_of_the_energy_in_water(tmp_path, method):
    system, topology, places, fit = in_water(tmp_path, method)
    planes = PlanarityRestraint(topology, positions=places, force_group=2, system=system)
    for energy in (fit, planes):
        system.addForce(energy.create_force("NativeForce", parameter_derivative=True))
    system = openmm.XmlSerializer.clone(system)
    context = context_on_cuda(system, places / 10)
    openmm.LocalEnergyMinimizer.minimize(context, maxIterations=20)
    for _ in range(2):
        context.getIntegrator().step(50)
        # As in a run that is taken up again.
        resumed = context_on_cuda(system, places / 10)
        resumed.setState(context.getState(positions=True, velocities=True, parameters=True))
        for each in (context, resumed):
            found = each.getState(parameterDerivatives=True).getEnergyParameterDerivatives()
            for name, group in ((fit.parameter_name, 1), (planes.parameter_name, 2)):
                k = each.getParameter(name)
                energies = []
                for factor in (0.5, 1.5):
                    each.setParameter(name, factor * k)
                    energies.append(energy_of(each, groups={group}))
                each.setParameter(name, k)
                assert found[name] == pytest.approx((energies[1] - energies[0]) / k, rel=1e-4)


@on_cuda
def test_an_integrator_takes_derivatives_in_its_steps():
    n = 50
    positions = some_positions(n)
    system = system_of(n, make_force(Computation(Spring(), None, False), "k", 2.5, True))
    integrator = openmm.CustomIntegrator(0.001)
    integrator.addGlobalVariable("slope", 0.0)
    integrator.addComputeGlobal("slope", "deriv(energy, k)")
    integrator.addComputePerDof("v", "v+dt*f/m")
    integrator.addComputePerDof("x", "x+dt*v")
    context = context_on_cuda(system, positions, integrator=integrator)
    for _ in range(3):
        at = context.getState(positions=True).getPositions(asNumpy=True)._value
        integrator.step(1)
        assert integrator.getGlobalVariableByName("slope") == pytest.approx((at**2).sum(), rel=1e-4)


@on_cuda
@pytest.mark.parametrize("precision", PRECISIONS)
def test_derivatives_of_forces_that_share_a_parameter_add_up(precision):
    positions = some_positions(300)
    system = system_of(300)
    groups = [range(i, 300, 5) for i in range(5)]
    for particles in groups:
        system.addForce(make_force(Computation(Spring(), np.array(particles), False), "k", 2.5, True))
    one, other = (context_on_cuda(system, scale * positions, precision) for scale in (1.0, 2.0))
    for _ in range(3):
        for context, scale in ((one, 1.0), (other, 2.0)):
            for wanted in ({}, {"energy": True}, {"forces": True}):
                state = context.getState(parameterDerivatives=True, **wanted)
                assert state.getEnergyParameterDerivatives()["k"] == pytest.approx(
                    scale**2 * (positions**2).sum(), rel=1e-5
                )
            context.getIntegrator().step(0)


class Copying(torch.nn.Module):
    """Four times the sum of x², by way of copies and of memory that is filled."""

    def forward(self, positions, k):
        rows = positions.clone()
        columns = torch.zeros(positions.shape[0], 8, device=positions.device)
        columns[:, 1:4] = positions
        filled = torch.zeros_like(positions)
        filled.copy_(rows)
        odd = torch.ones(7, dtype=torch.uint8, device=positions.device).clone()[1:].clone()
        twice = (rows**2).sum() + (columns**2).sum() + (filled * positions).sum()
        return k * (twice + (positions**2).sum() * (odd.sum() - 5))


@on_cuda
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("n", [1, 5, 1000])
def test_a_module_that_copies_and_fills_memory(precision, n):
    for scale in (1.0, 3.0):
        positions = scale * some_positions(n)
        force = CudaGraphForce(Copying(), {"k": 2.0}, parameter_derivatives=["k"])
        context = context_on_cuda(system_of(n, force), positions, precision)
        for _ in range(2):
            state = context.getState(energy=True, parameterDerivatives=True)
            squares = 4 * (positions**2).sum()
            assert state.getEnergyParameterDerivatives()["k"] == pytest.approx(squares, rel=1e-5)
            assert energy_of(context) == pytest.approx(2 * squares, rel=1e-5)
            np.testing.assert_allclose(forces_of(context), -16 * positions, rtol=1e-4, atol=1e-4)


@on_cuda
@pytest.mark.parametrize("precision", PRECISIONS)
def test_derivatives_are_added_beside_those_of_other_forces(precision):
    positions = some_positions(500)
    squares = (positions**2).sum()
    system = system_of(500)
    bonds = openmm.CustomBondForce("k*r+q*r^2")
    for name, value in (("k", 2.5), ("q", 1.0)):
        bonds.addGlobalParameter(name, value)
        bonds.addEnergyParameterDerivative(name)
    for i in range(1, 500):
        bonds.addBond(i - 1, i)
    bonds.setForceGroup(1)
    system.addForce(bonds)
    for name, asked in (("k", True), ("other", True), ("third", False)):
        system.addForce(make_force(Computation(Spring(), None, False), name, 2.5, asked))
    context = context_on_cuda(system, positions, precision)
    lengths = np.linalg.norm(np.diff(positions, axis=0), axis=1)
    expected = {"k": squares + lengths.sum(), "other": squares, "q": (lengths**2).sum()}
    for strength in (2.5, 0.0, 7.0):
        context.setParameter("k", strength)
        for _ in range(3):
            for wanted in ({}, {"energy": True}, {"forces": True}):
                state = context.getState(parameterDerivatives=True, **wanted)
                found = dict(state.getEnergyParameterDerivatives())
                assert not found.get("third", 0.0)
                for name, value in expected.items():
                    assert found[name] == pytest.approx(value, rel=1e-5)
            np.testing.assert_allclose(
                forces_of(context, groups={0}), -2 * (strength + 5.0) * positions, rtol=1e-5, atol=1e-5
            )
            context.getState(forces=True)


class Network(torch.nn.Module):
    """A small network on all distances: what a user may bring."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(8, width), torch.nn.SiLU(), torch.nn.Linear(width, width), torch.nn.Tanh()
        )
        self.out = torch.nn.Linear(width, 1)
        self.register_buffer("centres", torch.linspace(0.1, 1.5, 8))

    def forward(self, positions, scale, shift):
        away = positions[:, None] - positions[None]
        distances = torch.sqrt((away**2).sum(dim=-1) + 1e-6)
        features = torch.exp(-8 * (distances[..., None] - self.centres) ** 2)
        return scale * self.out(self.layers(features)).sum() + shift * shift


@on_cuda
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("width", [16, 256])
def test_a_network_of_the_users_own_by_autograd(precision, width):
    n = 40
    positions, network = some_positions(n), Network(width)
    force = CudaGraphForce(
        network,
        {"scale": 3.0, "shift": 1.0},
        particles=range(0, n, 2),
        parameter_derivatives=["scale", "shift"],
    )
    context = context_on_cuda(system_of(n, force), positions, precision)
    twin = Network(width).double()
    at = torch.tensor(positions[::2], requires_grad=True)
    for values in ((3.0, 1.0), (0.5, -2.0)):
        scale, shift = torch.tensor(values, dtype=torch.float64, requires_grad=True).unbind()
        scale.retain_grad()
        shift.retain_grad()
        context.setParameter("scale", values[0])
        context.setParameter("shift", values[1])
        energy = twin(at, scale, shift)
        gradients = torch.autograd.grad(energy, (at, scale, shift))
        state = context.getState(energy=True, forces=True, parameterDerivatives=True)
        assert energy_of(context) == pytest.approx(energy.item(), rel=1e-4)
        expected = np.zeros((n, 3))
        expected[::2] = -gradients[0].numpy()
        np.testing.assert_allclose(forces_of(context), expected, rtol=0, atol=1e-4 * abs(expected).max())
        found = state.getEnergyParameterDerivatives()
        assert found["scale"] == pytest.approx(gradients[1].item(), rel=1e-4)
        assert found["shift"] == pytest.approx(gradients[2].item(), rel=1e-4)
        first = forces_of(context)
        np.testing.assert_array_equal(first, forces_of(context))


class Waiting(torch.nn.Module):
    def forward(self, positions):
        return positions.sum() if float(positions.sum()) > 0 else -positions.sum()


class Nonzero(torch.nn.Module):
    def forward(self, positions):
        return positions[positions[:, 0] > 0].sum()


@on_cuda
@pytest.mark.parametrize("module", [Waiting(), Nonzero()])
def test_a_module_that_cannot_be_recorded_is_told_so_and_harms_nothing(module):
    context = context_on_cuda(system_of(5, CudaGraphForce(module)), some_positions(5))
    with pytest.raises(openmm.OpenMMException, match=r"cannot be recorded as a CUDA graph \(.*torch.where"):
        energy_of(context)
    other = make_force(Computation(Spring(), None, False), "k", 2.5)
    context = context_on_cuda(system_of(5, other), some_positions(5))
    np.testing.assert_allclose(forces_of(context), -5 * some_positions(5), rtol=1e-6)


@on_cuda
def test_a_network_in_a_simulation_keeps_the_energy():
    n = 30
    force = CudaGraphForce(Network(32), {"scale": 20.0, "shift": 0.0})
    context = context_on_cuda(system_of(n, force), some_positions(n))
    totals = []
    for _ in range(5):
        context.getIntegrator().step(200)
        state = context.getState(energy=True)
        totals.append((state.getPotentialEnergy() + state.getKineticEnergy())._value)
    assert max(totals) - min(totals) < 0.02 * (abs(totals[0]) + 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n_others", [0, 300])
def test_derivatives_go_to_their_sums_whatever_else_is_wanted(dtype, n_others):
    slots = Slots(2, 1, dtype)
    found = torch.tensor([1.0, 2.0, 4.0, 8.0], dtype=dtype, device=DEVICE)
    values = torch.tensor([*[7.0] * n_others, 0.5, 100.0, 0.25], dtype=torch.float64, device=DEVICE)
    numbers = torch.tensor([*[-1] * n_others, 3, -1, 0], dtype=torch.int32, device=DEVICE)
    forces = torch.ones(3, 38, dtype=torch.int64, device=DEVICE)
    exchange.give(
        torch.ones(1, 3, dtype=dtype, device=DEVICE),
        torch.tensor(5.5, dtype=torch.float64, device=DEVICE),
        exchange.Derivatives(values, numbers),
        torch.zeros(2, dtype=torch.float64, device=DEVICE),
        slots.rows,
        slots.particles.data_ptr(),
        exchange.Sums(forces.data_ptr(), 38, found[1:].data_ptr(), slots.bytes, found.data_ptr()),
    )
    assert found.tolist() == [1.25, 2.0, 4.0, 8.5]
    assert bool((forces == 1).all())
