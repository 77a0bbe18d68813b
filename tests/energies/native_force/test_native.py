"""Energies of this package by C++ on CPUs: the bits of their modules, no Python in a step, files, Contexts and threads."""

import base64
import copy
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import openmm
import pytest
import torch
from scipy.spatial.transform import Rotation

from openmm_density import DensityFit, DensityMap, PlanarityRestraint, SymmetryOperators
from openmm_density.energies import forces
from openmm_density.energies.copies import SideBySide
from openmm_density.energies.forces import BackendUnavailable, backend_problem, create_force
from openmm_density.energies.measures import SIMILARITIES
from openmm_density.energies.modules import ProbeEnergy
from openmm_density.energies.native_force import BuildError, Computation, NativeForce, forms, make_force
from openmm_density.energies.native_force import force as force_module
from openmm_density.energies.native_force.computation import as_text
from openmm_density.kernels import compilation
from openmm_density.restraints.planarity import planarity_module
from openmm_density.restraints.ramachandran import RamachandranRestraint

from ...contexts import energy_of, forces_of, system_of
from ...fragments import fragment
from ..test_forces import PLATFORMS, Spring

on_cpus = pytest.mark.parametrize(
    "platform", ["Reference", "CPU", pytest.param("OpenCL", marks=pytest.mark.opencl)]
)

needs_force = pytest.mark.skipif(
    backend_problem("NativeForce") is not None, reason=f"NativeForce: {backend_problem('NativeForce')}"
)

pytestmark = needs_force

BOX = np.array([[6.0, 0, 0], [0.5, 6.2, 0], [-0.4, 0.6, 6.4]])


class Model:
    """A peptide, a map of it, and it shaken."""

    def __init__(self, folder):
        model = fragment(folder / "model.pdb", residues=12)
        self.topology, self.positions = model.topology, model.positions
        self.map = DensityMap.simulate(self.topology, self.positions, 4.0, 1.0)
        noise = np.random.default_rng(1).normal(0, 0.3, self.positions.shape)
        self.moved = (self.positions + noise) / 10

    def fit(self, **options):
        return DensityFit(self.map, self.topology, 4.0, positions=self.positions, **options)

    def system(self, *forces, box=None):
        system = system_of(len(self.positions), *forces, box=box)
        if box is not None:
            bonded = openmm.HarmonicBondForce()
            bonded.setUsesPeriodicBoundaryConditions(True)
            bonded.setForceGroup(9)
            for a, b in self.topology.bonds():
                bonded.addBond(a.index, b.index, 0.15, 0.0)
            system.addForce(bonded)
        return system


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return Model(tmp_path_factory.mktemp("native"))


def context_of(system, positions, platform="Reference", **properties):
    if platform not in PLATFORMS:
        pytest.skip(f"OpenMM has no {platform} platform here")
    context = openmm.Context(
        system, openmm.VerletIntegrator(0.001), openmm.Platform.getPlatformByName(platform), properties
    )
    context.setPositions(positions)
    return context


def assert_bits_of_module(context, module, strength, name, periodic, platform):
    """Compare with the module in float64, which on OpenCL gets what OpenMM keeps in float32."""
    state = context.getState(positions=True, energy=True, forces=True, parameterDerivatives=True, groups={0})
    inputs = [torch.from_numpy(np.array(state.getPositions(asNumpy=True)._value))]
    if periodic:
        inputs.append(
            torch.tensor([list(v) for v in state.getPeriodicBoxVectors()._value], dtype=torch.float64)
        )
    k = torch.tensor(strength, dtype=torch.float64, requires_grad=True)
    energy, forces = module(*inputs, k)
    (slope,) = torch.autograd.grad(energy, k)
    found = state.getForces(asNumpy=True)._value, state.getPotentialEnergy()._value
    given = state.getEnergyParameterDerivatives()[name]
    if platform == "OpenCL":
        largest = float(forces.abs().max())
        np.testing.assert_allclose(found[0], forces.numpy(), rtol=0, atol=1e-6 * largest)
        assert found[1] == pytest.approx(energy.item(), rel=1e-5)
        assert given == pytest.approx(slope.item(), rel=1e-5)
    else:
        np.testing.assert_array_equal(found[0], forces.numpy())
        assert (found[1], given) == (energy.item(), slope.item())


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("of_system", [False, True])
def test_a_unit_with_its_copies_has_the_bits_of_its_module(model, similarity, periodic, of_system):
    turns = [Rotation.from_rotvec([0, 0.1, 2 * np.pi * n / 3]).as_matrix() for n in range(3)]
    operators = SymmetryOperators.from_matrices(turns, [[0, 0, 0], [3.0, -1.0, 2.0], [1.0, 4.0, -2.0]])
    system = model.system(box=BOX if periodic else None)
    options = dict(similarity=similarity, periodic=periodic, operators=operators)
    fit = model.fit(system=system if of_system else None, atoms="name CA or name CB", **options)
    system.addForce(fit.create_force("NativeForce", parameter_derivative=True))
    context = context_of(system, model.moved + 0.3 * np.arange(3))
    assert_bits_of_module(
        context, fit.create_module(), fit.default_strength, fit.parameter_name, periodic, "Reference"
    )


@on_cpus
@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("of_system", [False, True])
def test_a_density_has_the_bits_of_its_module(model, platform, similarity, periodic, of_system):
    system = model.system(box=BOX if periodic else None)
    fit = model.fit(
        similarity=similarity,
        periodic=periodic,
        system=system if of_system else None,
        atoms="name CA or name CB",
    )
    system.addForce(fit.create_force("NativeForce", parameter_derivative=True))
    shift = BOX.T @ [1, -2, 1] if periodic else 0.0
    context = context_of(system, model.moved + shift, platform)
    for strength in (fit.default_strength, -3.0, 0.0):
        context.setParameter("density_strength", strength)
        assert_bits_of_module(context, fit.create_module(), strength, "density_strength", periodic, platform)


@on_cpus
def test_planes_have_the_bits_of_their_module(model, platform):
    restraint = PlanarityRestraint(model.topology, positions=model.positions)
    context = context_of(
        model.system(restraint.create_force("NativeForce", parameter_derivative=True)), model.moved, platform
    )
    context.setParameter("planarity_strength", 0.7)
    assert_bits_of_module(context, restraint.create_module(), 0.7, "planarity_strength", False, platform)


@on_cpus
def test_planes_are_whole_though_a_box_parts_them(model, platform):
    planes = PlanarityRestraint(model.topology, positions=model.positions).planes
    module = planarity_module(planes, np.arange(len(model.moved)), 2.5, constants=True, periodic=True)
    force = make_force(Computation(module, None, True), "k", 0.7)
    assert force.isEvaluatedNatively()
    positions = model.moved.copy()
    positions[::3] += BOX[1] - 2 * BOX[2]
    context = context_of(model.system(force, box=BOX), positions, platform)
    # torch multiplies by the lattice and adds up the members of planes in orders of its own; on OpenCL positions are float32.
    tolerance = 2e-5 if platform == "OpenCL" else 1e-6
    energy, expected = module(torch.from_numpy(positions), torch.from_numpy(BOX), torch.tensor(0.7))
    assert energy_of(context) == pytest.approx(energy.item(), rel=tolerance)
    largest = float(expected.abs().max())
    np.testing.assert_allclose(forces_of(context), expected.numpy(), rtol=0, atol=tolerance * largest)


@on_cpus
def test_torsion_maps_have_the_bits_of_their_module(model, platform):
    restraint = RamachandranRestraint(model.topology, model.positions)
    system = model.system(restraint.create_force("NativeForce", parameter_derivative=True))
    context = context_of(system, model.moved, platform)
    context.setParameter("ramachandran_strength", 2.5)
    assert_bits_of_module(context, restraint.create_module(), 2.5, "ramachandran_strength", False, platform)


@on_cpus
def test_models_side_by_side_have_a_strength_each(model, platform):
    n = len(model.positions)
    energies = [model.fit(similarity=name).create_module() for name in SIMILARITIES[:3]]
    force = make_force(
        Computation(SideBySide(energies), None, False, 3),
        ["a", "b", "c"],
        [1.0, 2.0, 3.0],
        [True, False, True],
    )
    assert force.isEvaluatedNatively()
    context = context_of(system_of(3 * n, force), np.concatenate([model.moved] * 3), platform)
    k = torch.tensor([1.0, 20.0, -3.0], dtype=torch.float64)
    for name, value in zip("abc", k.tolist()):
        context.setParameter(name, value)
    found = [
        energy(torch.from_numpy(model.moved), each.requires_grad_())
        for energy, each in zip(energies, k.clone().unbind())
    ]
    assert energy_of(context) == pytest.approx(sum(e.item() for e, _ in found), rel=1e-5)
    expected = np.concatenate([forces.numpy() for _, forces in found])
    np.testing.assert_allclose(forces_of(context), expected, rtol=0, atol=1e-5 * abs(expected).max())
    slopes = context.getState(parameterDerivatives=True).getEnergyParameterDerivatives()
    for i, name in ((0, "a"), (2, "c")):
        assert slopes[name] == pytest.approx((found[i][0] / k[i]).item(), rel=1e-5)


@pytest.mark.skipif(backend_problem("TorchForce") is not None, reason="TorchForce does not work")
@on_cpus
def test_it_pulls_as_torch_force_does(model, platform):
    fit, found = model.fit(), {}
    for backend in ("TorchForce", "NativeForce"):
        context = context_of(model.system(fit.create_force(backend)), model.moved, platform)
        found[backend] = energy_of(context), forces_of(context)
    np.testing.assert_array_equal(found["NativeForce"][1], found["TorchForce"][1])
    assert found["NativeForce"][0] == pytest.approx(found["TorchForce"][0], rel=1e-7)


@on_cpus
def test_derivatives_add_up_with_those_of_other_forces_and_groups(model, platform):
    bonds = openmm.CustomBondForce("k*r")
    bonds.addGlobalParameter("k", 2.5)
    bonds.addEnergyParameterDerivative("k")
    for i in range(1, len(model.moved)):
        bonds.addBond(i - 1, i)
    bonds.setForceGroup(1)
    lengths = np.linalg.norm(np.diff(model.moved, axis=0), axis=1).sum()
    squares = (model.moved**2).sum()
    density = model.fit().create_force("NativeForce")
    spring = make_force(Computation(Spring(), None, False), "k", 2.5, True)
    context = context_of(model.system(bonds, density, spring), model.moved, platform)
    for _ in range(2):
        for groups, expected in ((-1, squares + lengths), ({0}, squares), ({1}, lengths), ({4}, 0)):
            state = context.getState(parameterDerivatives=True, groups=groups)
            found = state.getEnergyParameterDerivatives()
            assert found["k"] == pytest.approx(expected, rel=1e-5)


def test_no_step_runs_python(model, monkeypatch):
    def refuse(*arguments):
        raise AssertionError("Python was called")

    forces = [
        model.fit().create_force("NativeForce"),
        PlanarityRestraint(model.topology, positions=model.positions).create_force("NativeForce"),
    ]
    assert all(force.isEvaluatedNatively() for force in forces)
    context = context_of(model.system(*forces), model.moved, "CPU")
    monkeypatch.setattr(force_module, "evaluate", refuse)
    context.getIntegrator().step(3)
    monkeypatch.undo()
    spring = create_force(Spring(), "k", 1.0, periodic=False, name="x", backend="NativeForce")
    assert not spring.isEvaluatedNatively()


FRESH = """
import sys
import numpy as np
import openmm_density
import openmm
system = openmm.XmlSerializer.deserialize(open(sys.argv[1]).read())
context = openmm.Context(system, openmm.VerletIntegrator(0.001), openmm.Platform.getPlatformByName("Reference"))
context.setPositions(np.load(sys.argv[2]))
context.setParameter("density_strength", 123.0)
state = context.getState(energy=True, forces=True, parameterDerivatives=True)
np.savez(sys.argv[3], forces=state.getForces(asNumpy=True)._value, energy=state.getPotentialEnergy()._value,
         slope=state.getEnergyParameterDerivatives()["density_strength"])
"""


def test_another_process_reads_a_system_with_the_same_bits(model, tmp_path, forked):
    forces = [
        model.fit(weights="electron", b_factors=np.full(len(model.moved), 30.0)).create_force(
            "NativeForce", parameter_derivative=True
        ),
        PlanarityRestraint(model.topology, positions=model.positions).create_force("NativeForce"),
        RamachandranRestraint(model.topology, model.positions).create_force("NativeForce"),
    ]
    system = model.system(*forces)
    paths = [tmp_path / name for name in ("system.xml", "positions.npy", "found.npz")]
    paths[0].write_text(openmm.XmlSerializer.serialize(system))
    np.save(paths[1], model.moved)
    run = subprocess.run([sys.executable, "-c", FRESH, *paths], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    context = context_of(system, model.moved)
    context.setParameter("density_strength", 123.0)
    found = np.load(paths[2])
    np.testing.assert_array_equal(found["forces"], forces_of(context))
    assert found["energy"] == energy_of(context)
    assert found["slope"] > 0


def test_a_copied_system_keeps_name_group_and_parameters(model):
    fit = model.fit(force_group=5, parameter_name="pull")
    force = fit.create_force("NativeForce", parameter_derivative=True)
    system = model.system(force)
    for found in (copy.deepcopy(system), openmm.XmlSerializer.clone(system)):
        read = found.getForce(0)
        assert NativeForce.isinstance(read)
        read = NativeForce.cast(read)
        assert (type(read).__name__, read.getName(), read.getForceGroup()) == ("NativeForce", "DensityFit", 5)
        assert read.getGlobalParameterName(0) == read.getEnergyParameterDerivativeName(0) == "pull"
        assert read.isEvaluatedNatively()
        with pytest.raises(IndexError, match="1 parameters, and none of number 1"):
            read.getGlobalParameterName(1)


def test_contexts_and_threads_do_not_disturb_each_other(model):
    fit = model.fit()
    system = model.system(fit.create_force("NativeForce"))
    platforms = ("Reference", "CPU", "Reference", "CPU")
    contexts = [context_of(system, model.moved + 0.02 * i, name) for i, name in enumerate(platforms)]
    module = fit.create_module()
    expected = [
        module(torch.from_numpy(model.moved + 0.02 * i), torch.tensor(fit.default_strength))[1].numpy()
        for i in range(4)
    ]

    def evaluate(i):
        return [forces_of(contexts[i]) for _ in range(20)]

    with ThreadPoolExecutor(4) as pool:
        for i, found in enumerate(pool.map(evaluate, range(4))):
            for each in found:
                np.testing.assert_array_equal(each, expected[i])


def test_any_number_of_threads_gives_the_same_bits(model):
    system = model.system(
        model.fit(atoms="all").create_force("NativeForce"),
        PlanarityRestraint(model.topology, positions=model.positions).create_force("NativeForce"),
    )
    found = [forces_of(context_of(system, model.moved, "CPU", Threads=n)) for n in ("1", "2", "3")]
    for each in found[1:]:
        np.testing.assert_array_equal(each, found[0])


@on_cpus
def test_a_system_of_another_number_of_particles_is_refused(model, platform):
    fit = model.fit()
    n = len(model.positions)
    system = system_of(n + 2, fit.create_force("NativeForce"))
    context = context_of(system, np.zeros((n + 2, 3)), platform)
    with pytest.raises(
        openmm.OpenMMException,
        match=f"NativeForce: DensityFit was made of a topology of {n} atoms, but the System has {n + 2} particles",
    ):
        energy_of(context)
    of_system = model.fit(system=model.system())
    context = context_of(system_of(3, of_system.create_force("NativeForce")), np.zeros((3, 3)), platform)
    with pytest.raises(openmm.OpenMMException, match=f"an atom {n - 1}, but the System has 3 particles"):
        energy_of(context)


def with_energy(text, computation):
    """Put another energy into the XML of a System with one force."""
    return re.sub(r'computation="[^"]*"', lambda _: f'computation="{as_text(computation)}"', text)


@pytest.mark.parametrize(
    ("name", "index", "value", "words"),
    [
        ("atoms", 3, 10**6, "damaged.*atom 1000000 is not among"),
        ("atoms", 3, -1, "damaged.*atom -1 is not among"),
        ("matrix", (0, 0), 0.0, "damaged.*span no volume"),
    ],
)
def test_damaged_tables_in_a_file_are_refused(model, name, index, value, words):
    module = model.fit().create_module()
    text = openmm.XmlSerializer.serialize(
        model.system(make_force(Computation(module, None, False), "k", 1.0))
    )
    getattr(module, name)[index] = value
    with pytest.raises(openmm.OpenMMException, match=f"CudaGraphForce: .*{words}"):
        openmm.XmlSerializer.deserialize(with_energy(text, Computation(module, None, False)))
    with pytest.raises(ValueError, match="TorchEnergy is no energy"):
        forms.module_of(forms.Form("TorchEnergy", {}, {}, {}))


def periodic_planes(model):
    planes = PlanarityRestraint(model.topology, positions=model.positions).planes
    return planarity_module(planes, np.arange(len(model.moved)), 2.5, constants=True, periodic=True)


@pytest.mark.parametrize(
    ("name", "damage", "words"),
    [
        ("members", lambda table: table.int(), "takes members as int64, not int32"),
        ("anchors", lambda table: table.int(), "takes anchors as int64, not int32"),
        ("anchors", lambda table: table[:1], "1 anchors of"),
        ("rows", lambda table: table.int(), "takes rows as int64, not int32"),
        ("rows", lambda table: torch.where(table == 2, -3, table), "-3 among its rows"),
        ("rows", lambda table: torch.where(table == 2, 10**9, table), "index 1000000000 is out of bounds"),
    ],
)
def test_indices_that_torch_takes_and_c_does_not_are_refused(model, name, damage, words):
    module = periodic_planes(model)
    text = openmm.XmlSerializer.serialize(
        model.system(make_force(Computation(module, None, True), "k", 1.0, kind="NativeForce"))
    )
    setattr(module, name, damage(getattr(module, name)))
    with pytest.raises(openmm.OpenMMException, match=f"NativeForce: .*{words}"):
        openmm.XmlSerializer.deserialize(with_energy(text, Computation(module, None, True)))
    with pytest.raises(
        ValueError, match=words.replace("index 1000000000 is out of bounds", "1000000000 among")
    ):
        make_force(Computation(module, None, True), "k", 1.0)


@pytest.mark.parametrize("particles", [[0, -1], [1, 1], [0.5, 1.0], [[0], [1]]])
def test_particles_in_a_file_are_indices(particles):
    computation = Computation(ProbeEnergy(), np.arange(2), False)
    text = openmm.XmlSerializer.serialize(system_of(3, make_force(computation, "k", 1.0)))
    data = base64.b64decode(as_text(computation)).replace(b"[0, 1]", json.dumps(particles).encode())
    text = text.replace(as_text(computation), base64.b64encode(data).decode())
    with pytest.raises(openmm.OpenMMException, match=r"damaged \(particles must be indices from 0 on"):
        openmm.XmlSerializer.deserialize(text)


@on_cpus
def test_what_goes_wrong_in_an_energy_is_an_error_of_openmm(model, platform):
    module = PlanarityRestraint(model.topology, positions=model.positions).create_module()
    del module.thermal_energy
    force = make_force(Computation(module, None, False), "k", 1.0, kind="NativeForce")
    context = context_of(model.system(force), model.moved, platform)
    with pytest.raises(
        openmm.OpenMMException, match="NativeForce: PlanarityEnergy has no number thermal_energy"
    ):
        energy_of(context)


@pytest.fixture
def no_kernel_of_density(monkeypatch):
    """As where the force can be compiled, but not the density's kernel."""
    entry_points = compilation.entry_points

    def refuse(folder):
        if folder == "density":
            raise BuildError("the density kernel cannot be compiled", "x.cpp:1: error: no")
        return entry_points(folder)

    monkeypatch.setattr(compilation, "entry_points", refuse)


def test_without_a_kernel_python_does_not_stand_in_unasked(model, no_kernel_of_density, monkeypatch):
    fit = model.fit()
    with pytest.raises(BackendUnavailable, match=r'backend="NativeForce".*density kernel cannot be compiled'):
        fit.create_force("NativeForce")
    others = [
        name
        for name in forces.ON_ALL_PLATFORMS[::-1]
        if name not in forces.OWN and backend_problem(name) is None
    ]
    problems = {name: None if name == "NativeForce" else "not there" for name in forces.ON_ALL_PLATFORMS}
    monkeypatch.setattr(forces, "backend_problem", problems.get)
    with pytest.raises(
        BackendUnavailable, match=r"NativeForce does not work here \(the density kernel cannot be"
    ):
        fit.create_force()
    if others:
        problems[others[0]] = None
        monkeypatch.setattr(forces, "ON_ALL_PLATFORMS", ("NativeForce", others[0]))
        assert not NativeForce.isinstance(fit.create_force())
    with pytest.raises(BuildError, match="density kernel cannot be compiled"):
        make_force(Computation(fit.create_module(), None, False), "k", 1.0, kind="NativeForce")
    # For a GPU none is needed.
    assert not make_force(Computation(fit.create_module(), None, False), "k", 1.0).isEvaluatedNatively()
