"""What a fit asks of OpenMM's platforms."""

from types import SimpleNamespace

import openmm
import pytest

from openmm_density import DensityFit, PlanarityRestraint
from openmm_density.errors import InputError
from openmm_density.fitting import flexible_fit
from openmm_density.fitting.flexible_fit import FlexibleFit, platform_properties

from ..fragments import RESOLUTION, fragment, map_of


@pytest.mark.parametrize(
    ("names", "threads", "expected"),
    [
        (("Threads", "DeterministicForces"), 2, {"Threads": "2", "DeterministicForces": "true"}),
        (("Threads", "DeterministicForces"), None, {"DeterministicForces": "true"}),
        (("DeviceIndex", "Precision", "UseCpuPme"), 2, {"Precision": "mixed"}),
        (
            ("DeviceIndex", "Precision", "DeterministicForces"),
            None,
            {"Precision": "mixed", "DeterministicForces": "true"},
        ),
        ((), 2, {}),
    ],
)
def test_properties_are_those_that_the_platform_has(names, threads, expected):
    assert platform_properties(SimpleNamespace(getPropertyNames=lambda: names), threads) == expected


def test_every_platform_here_takes_them():
    for number in range(openmm.Platform.getNumPlatforms()):
        platform = openmm.Platform.getPlatform(number)
        system = openmm.System()
        system.addParticle(1.0)
        wanted = platform_properties(platform, 1)
        context = openmm.Context(system, openmm.VerletIntegrator(0.001), platform, wanted)
        for name, value in wanted.items():
            assert platform.getPropertyValue(context, name).lower() == value


@pytest.mark.parametrize(
    ("platform", "backend", "graphs"),
    [
        ("CUDA", "TorchForce", True),
        ("CUDA", "PythonForce", True),
        ("CUDA", "PythonTorchForce", False),
        ("CPU", "TorchForce", False),
        ("OpenCL", "TorchForce", False),
    ],
)
def test_graphs_are_for_cuda(monkeypatch, platform, backend, graphs):
    monkeypatch.setattr(flexible_fit, "best_backend", lambda: backend)
    fit = SimpleNamespace(platform=platform)
    assert FlexibleFit._force_options(fit) == {"parameter_derivative": False, "cuda_graphs": graphs}


def test_the_forces_of_a_fit_are_made_with_these_options(monkeypatch, tmp_path):
    made = []
    options = {"parameter_derivative": False, "cuda_graphs": True}
    monkeypatch.setattr(FlexibleFit, "_force_options", lambda self: options)
    for owner in (DensityFit, PlanarityRestraint):
        create = owner.create_force
        monkeypatch.setattr(
            owner,
            "create_force",
            lambda self, _create=create, **given: made.append(given) or _create(self, **given),
        )
    model = fragment(tmp_path / "model.pdb", residues=16)
    FlexibleFit(model, map_of(16, 0.0, 1, tmp_path), RESOLUTION, "quick")
    assert len(made) >= 2 and all(given == options for given in made)


def test_a_platform_without_a_device_is_told(monkeypatch):
    monkeypatch.setattr(flexible_fit, "platform_properties", lambda *_: {"Device": "none"})
    with pytest.raises(
        InputError, match=r'platform="Reference" does not run here \(.*Device.*\): use another'
    ):
        flexible_fit._check_run(0, "Reference", None)
