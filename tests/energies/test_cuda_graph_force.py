"""The CUDA graph force without a GPU: it is compiled, made, written, read, and refused where it cannot run."""

import copy
import gc
import subprocess
import sys

import numpy as np
import openmm
import pytest
import torch

pytest.importorskip("triton")

from openmm_density.energies.cuda_graph_force import (
    BuildError,
    Computation,
    CudaGraphForce,
    library,
    make_force,
)
from openmm_density.energies.forces import BackendUnavailable, backend_problem, create_force
from openmm_density.errors import InputError

from .contexts import system_of
from .test_forces import PeriodicSpring, Spring

HAS_CUDA = backend_problem("CudaGraphForce") is None


def made(module=None, particles=None, periodic=False):
    return make_force(Computation(module or Spring(), particles, periodic), "k", 2.5)


def test_is_a_force_of_its_parameter():
    force = made(PeriodicSpring(), periodic=True)
    assert isinstance(force, openmm.Force)
    assert force.usesPeriodicBoundaryConditions()
    assert not made().usesPeriodicBoundaryConditions()
    force.setForceGroup(3)
    force.setName("density")
    system = system_of(2, force)
    handed_out = system.getForce(0)
    assert CudaGraphForce.isinstance(handed_out)
    found = CudaGraphForce.cast(handed_out)
    assert (found.getName(), found.getForceGroup()) == ("density", 3)
    assert [found.getGlobalParameterName(i) for i in range(found.getNumGlobalParameters())] == ["k"]
    assert not CudaGraphForce.isinstance(openmm.HarmonicBondForce())


@pytest.mark.parametrize("platform", ["Reference", "CPU"])
def test_other_platforms_are_refused_with_what_to_use(platform):
    with pytest.raises(
        openmm.OpenMMException, match=f"CUDA platform, not on {platform}: use TorchForce there"
    ):
        openmm.Context(
            system_of(2, made()),
            openmm.VerletIntegrator(0.001),
            openmm.Platform.getPlatformByName(platform),
        )


@pytest.mark.parametrize("particles", [None, np.array([], dtype=np.int64), np.array([1, 4, 7])])
@pytest.mark.parametrize("periodic", [False, True])
def test_a_computation_is_read_as_it_was_written(particles, periodic):
    computation = Computation(PeriodicSpring() if periodic else Spring(), particles, periodic)
    found = library.unpacked(library.packed(computation))
    assert found.periodic is periodic
    if particles is None:
        assert found.particles is None
    else:
        np.testing.assert_array_equal(found.particles, particles)
    positions, strength = torch.rand(3, 3), torch.tensor(2.0)
    inputs = (positions, torch.eye(3), strength) if periodic else (positions, strength)
    for expected, value in zip(computation.module(*inputs), found.module(*inputs)):
        assert torch.equal(expected, value)


def test_a_system_is_written_read_and_copied_with_its_force():
    force = made(particles=np.array([0, 2]))
    force.setForceGroup(5)
    force.setName("density")
    system = system_of(3, force)
    text = openmm.XmlSerializer.serialize(system)
    for found in (openmm.XmlSerializer.deserialize(text), copy.deepcopy(system)):
        read = CudaGraphForce.cast(found.getForce(0))
        assert (read.getName(), read.getForceGroup(), read.getGlobalParameterName(0)) == ("density", 5, "k")
        assert openmm.XmlSerializer.serialize(found).split("computation=")[0] == text.split("computation=")[0]


def test_a_fresh_process_reads_a_system_once_the_force_is_loaded(tmp_path):
    path = tmp_path / "system.xml"
    path.write_text(openmm.XmlSerializer.serialize(system_of(3, made())))
    script = (
        "import openmm\n"
        "from openmm_density.energies import cuda_graph_force\n"
        "cuda_graph_force.load()\n"
        f"system = openmm.XmlSerializer.deserialize(open({str(path)!r}).read())\n"
        "print(cuda_graph_force.CudaGraphForce.cast(system.getForce(0)).getGlobalParameterName(0))\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert (run.returncode, run.stdout.strip()) == (0, "k"), run.stderr


def test_a_computation_is_forgotten_with_its_forces():
    gc.collect()
    before = set(library._computations)
    system = system_of(3, made())
    copied = copy.deepcopy(system)
    assert len(set(library._computations) - before) == 2
    del system, copied
    gc.collect()
    assert set(library._computations) <= before


def test_a_module_that_torchscript_cannot_write_is_named_when_the_system_is_written():
    class Unwritable(torch.nn.Module):
        def forward(self, positions, strength):
            return eval("strength"), positions

    with pytest.raises(openmm.OpenMMException, match="builtin function eval> is currently not supported"):
        openmm.XmlSerializer.serialize(system_of(3, made(Unwritable())))


def test_a_damaged_file_is_refused():
    text = openmm.XmlSerializer.serialize(system_of(3, made()))
    start = text.index('computation="') + len('computation="')
    with pytest.raises(openmm.OpenMMException, match="CudaGraphForce: "):
        openmm.XmlSerializer.deserialize(text[:start] + "AAAA" + text[start + 400 :])
    with pytest.raises(openmm.OpenMMException, match="newer openmm-density"):
        openmm.XmlSerializer.deserialize(
            text.replace('type="CudaGraphForce" version="1"', 'type="CudaGraphForce" version="2"')
        )


def test_an_openmm_without_headers_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(openmm.version, "openmm_library_path", str(tmp_path / "lib"))
    with pytest.raises(BuildError, match=r"without its C\+\+ headers .*CudaContext.h"):
        library._source()


@pytest.mark.skipif(HAS_CUDA, reason="the CUDA platform works")
def test_the_backend_says_why_it_does_not_work_here():
    with pytest.raises(BackendUnavailable, match=r"CudaGraphForce.* does not work here: .*CUDA platform"):
        create_force(Spring(), "k", 2.5, periodic=False, name="x", backend="CudaGraphForce")


@pytest.mark.skipif(not HAS_CUDA, reason="no CUDA platform")
def test_options_of_other_backends_are_refused():
    arguments = dict(periodic=False, name="x", backend="CudaGraphForce")
    with pytest.raises(InputError, match="no energy derivatives"):
        create_force(Spring(), "k", 2.5, parameter_derivative=True, **arguments)
    with pytest.raises(InputError, match="device is for PythonForce"):
        create_force(Spring(), "k", 2.5, device="cuda", **arguments)
