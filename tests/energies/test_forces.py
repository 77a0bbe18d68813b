import pickle
import warnings

import numpy as np
import openmm
import pytest
import torch

from openmm_density.base.errors import InputError
from openmm_density.energies import forces
from openmm_density.energies.forces import (
    BACKENDS,
    ON_ALL_PLATFORMS,
    BackendUnavailable,
    backend_problem,
    best_backend,
    create_force,
)

from ..contexts import context_of, energy_of, forces_of, system_of

PLATFORMS = {openmm.Platform.getPlatform(i).getName() for i in range(openmm.Platform.getNumPlatforms())}
needs_torch_force = pytest.mark.skipif(
    backend_problem("TorchForce") is not None,
    reason=f"TorchForce does not work: {backend_problem('TorchForce')}",
)


class Spring(torch.nn.Module):
    """E = k Σ x², whose derivative with respect to k is Σ x²."""

    def forward(self, positions: torch.Tensor, strength: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        k = strength.reshape(()).to(torch.float64)
        with torch.no_grad():
            squares = (positions.to(torch.float64) ** 2).sum()
            result = (-2 * k.to(positions) * positions).contiguous()
        return k * squares, result


class PeriodicSpring(torch.nn.Module):
    """E = k Σ (x − a)², a being the sum of the box vectors."""

    def forward(
        self, positions: torch.Tensor, box: torch.Tensor, strength: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        k = strength.reshape(()).to(torch.float64)
        with torch.no_grad():
            away = positions - box.to(positions).sum(dim=0)
            squares = (away.to(torch.float64) ** 2).sum()
            result = (-2 * k.to(positions) * away).contiguous()
        return k * squares, result


POSITIONS = np.array([[0.1, -0.2, 0.3], [0.5, 0.7, -0.4], [1.1, 0.2, 0.6]])
BOX = np.array([[3.0, 0, 0], [0.5, 3.1, 0], [-0.4, 0.6, 3.2]])


def spring(module=None, **arguments):
    settings = dict(periodic=False, name="Spring") | arguments
    return create_force(module or Spring(), "k", 2.5, **settings)


def context_with(*added, platform="Reference", box=None):
    context = context_of(system_of(len(POSITIONS), *added, box=box), platform=platform)
    context.setPositions(POSITIONS)
    return context


def energy_and_forces(context, **arguments):
    return energy_of(context, **arguments), forces_of(context, **arguments)


@needs_torch_force
@pytest.mark.parametrize(
    "platform", ["Reference", "CPU", pytest.param("OpenCL", marks=pytest.mark.opencl), "CUDA"]
)
def test_energy_and_forces_on_every_platform(platform):
    if platform not in PLATFORMS:
        pytest.skip(f"OpenMM has no {platform} platform here")
    for derivative in (None, True, False):
        force = spring(parameter_derivative=derivative)
        assert force.getNumEnergyParameterDerivatives() == (0 if derivative is False else 1)
        context = context_with(force, platform=platform)
        for k in (2.5, 7.0, 0.0):
            if k != 2.5:
                context.setParameter("k", k)
            energy, found = energy_and_forces(context)
            assert energy == pytest.approx(k * (POSITIONS**2).sum(), rel=1e-5, abs=1e-6)
            np.testing.assert_allclose(found, -2 * k * POSITIONS, rtol=1e-5, atol=1e-6)
            if derivative is not False:
                state = context.getState(parameterDerivatives=True)
                assert state.getEnergyParameterDerivatives()["k"] == pytest.approx(
                    (POSITIONS**2).sum(), rel=1e-5
                )


@needs_torch_force
@pytest.mark.parametrize("platform", ["Reference", "CPU"])
def test_box_vectors_reach_a_periodic_module(platform):
    force = spring(PeriodicSpring(), periodic=True)
    assert force.usesPeriodicBoundaryConditions()
    context = context_with(force, platform=platform, box=BOX)
    away = POSITIONS - BOX.sum(axis=0)
    energy, found = energy_and_forces(context)
    assert energy == pytest.approx(2.5 * (away**2).sum(), rel=1e-6)
    np.testing.assert_allclose(found, -5 * away, rtol=1e-6)
    assert not spring().usesPeriodicBoundaryConditions()


@needs_torch_force
def test_name_group_parameter_and_default():
    force = spring(force_group=7)
    assert force.getName() == "Spring"
    assert force.getForceGroup() == 7
    assert force.getGlobalParameterName(0) == "k"
    assert force.getGlobalParameterDefaultValue(0) == 2.5
    context = context_with(force)
    energy, found = energy_and_forces(context, groups={7})
    assert energy == pytest.approx(2.5 * (POSITIONS**2).sum())
    energy, found = energy_and_forces(context, groups={0})
    assert energy == 0
    assert not found.any()


def test_an_unknown_backend_is_named_with_those_that_exist():
    with pytest.raises(InputError, match=r'backend must be.*found "CUDA".*TorchForce.*PythonForce'):
        spring(backend="CUDA")


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_works_or_says_why_not(backend):
    problem = backend_problem(backend)
    if problem is None:
        energy, found = energy_and_forces(context_with(spring(backend=backend)))
        assert energy == pytest.approx(2.5 * (POSITIONS**2).sum())
        np.testing.assert_allclose(found, -5 * POSITIONS, rtol=1e-6)
    else:
        with pytest.raises(BackendUnavailable, match=f'backend="{backend}" does not work here') as error:
            spring(backend=backend)
        assert problem in str(error.value)
        assert "\n" not in str(error.value)


def test_the_first_backend_that_works_is_taken_and_a_lesser_one_is_announced(monkeypatch):
    problems = {"TorchForce": None, "NativeForce": None, "PythonTorchForce": "no", "PythonForce": None}
    monkeypatch.setattr(forces, "backend_problem", problems.get)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert best_backend() == "TorchForce"
        problems["TorchForce"] = "it is broken."
        assert best_backend() == "NativeForce"
    problems["NativeForce"] = "no compiler"
    with pytest.warns(
        UserWarning,
        match=r"using PythonForce, because TorchForce does not work here \(it is broken\); NativeForce .*\(no compiler",
    ):
        assert best_backend() == "PythonForce"
    problems["PythonForce"] = "not there"
    with pytest.raises(BackendUnavailable, match="pip install") as error:
        best_backend()
    for backend in ON_ALL_PLATFORMS:
        assert backend in str(error.value)


@pytest.fixture
def fake_python_force(monkeypatch):
    """A stand-in for `openmm.PythonForce` that keeps what it is given."""

    class PythonForce:
        def __init__(self, computation, parameters):
            self.computation, self.parameters, self.settings = computation, parameters, {}

        def setUsesPeriodicBoundaryConditions(self, periodic):
            self.settings["periodic"] = periodic

        def setForceGroup(self, group):
            self.settings["group"] = group

        def setName(self, name):
            self.settings["name"] = name

    monkeypatch.setattr(openmm, "PythonForce", PythonForce, raising=False)
    monkeypatch.setattr(forces, "backend_problem", lambda backend: None)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("graphs", [False, True])
def test_python_force_works_on_the_gpu(fake_python_force, periodic, graphs):
    module = PeriodicSpring() if periodic else Spring()
    force = spring(module, periodic=periodic, backend="PythonForce", cuda_graphs=graphs)
    external = openmm.CustomExternalForce("0*k*x")
    external.addGlobalParameter("k", 4.0)
    context = context_with(external, box=BOX)
    for shift in np.linspace(0, 1, 6):
        positions = POSITIONS + shift
        context.setPositions(positions)
        energy, found = force.computation(context.getState(positions=True, parameters=True))
        away = positions - BOX.sum(axis=0) if periodic else positions
        assert energy == pytest.approx(4.0 * (away**2).sum())
        np.testing.assert_allclose(found, -8 * away, rtol=1e-6)
    read_back = pickle.loads(pickle.dumps(force.computation))
    assert read_back(context.getState(positions=True, parameters=True))[0] == pytest.approx(energy)


def test_a_device_is_for_python_force_and_has_to_exist(fake_python_force):
    assert spring(backend="PythonForce", device="cpu").computation.used_device == torch.device("cpu")
    with pytest.raises(InputError, match=r'device cannot be used.*"abacus"'):
        spring(backend="PythonForce", device="abacus")
    with pytest.raises(InputError, match="with TorchForce the platform decides"):
        spring(backend="TorchForce", device="cpu")


@needs_torch_force
def test_cuda_graphs_are_a_property_of_torch_force():
    assert spring().getProperties()["useCUDAGraphs"] == "false"
    force = spring(cuda_graphs=True)
    assert force.getProperties()["useCUDAGraphs"] == "true"
    _, found = energy_and_forces(context_with(force))
    np.testing.assert_allclose(found, -5 * POSITIONS, rtol=1e-6)


def test_only_torch_force_has_parameter_derivatives(fake_python_force):
    spring(backend="PythonForce", parameter_derivative=False)
    with pytest.raises(InputError, match="PythonForce has no energy derivatives"):
        spring(backend="PythonForce", parameter_derivative=True)
