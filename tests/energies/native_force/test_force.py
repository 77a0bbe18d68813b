"""The CUDA graph force without a GPU: it is compiled, made, written, read, and refused where it cannot run."""

import copy
import subprocess
import sys
import warnings

import numpy as np
import openmm
import pytest
import torch

pytest.importorskip("triton")


import gc
from concurrent.futures import ThreadPoolExecutor

from openmm_density.base.errors import DeveloperWarning
from openmm_density.energies.forces import BackendUnavailable, backend_problem, create_force
from openmm_density.energies.native_force import (
    BuildError,
    Computation,
    CudaGraphForce,
    compiled,
    make_force,
)
from openmm_density.energies.native_force import force as force_module
from openmm_density.energies.native_force.computation import as_text, from_text

from ...contexts import system_of
from ..test_forces import (
    BOX,
    PLATFORMS,
    POSITIONS,
    PeriodicSpring,
    Spring,
    context_with,
    energy_and_forces,
)

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


@pytest.mark.parametrize("platform", ["Reference", "CPU", pytest.param("OpenCL", marks=pytest.mark.opencl)])
@pytest.mark.parametrize("particles", [None, np.array([0, 2])])
def test_other_platforms_evaluate_it_through_python(platform, particles):
    if platform not in PLATFORMS:
        pytest.skip(f"OpenMM has no {platform} platform here")
    force = made(PeriodicSpring(), particles, periodic=True)
    force.setForceGroup(3)
    context = context_with(force, platform=platform, box=BOX)
    chosen = slice(None) if particles is None else particles
    for k in (2.5, 7.0):
        context.setParameter("k", k)
        away = (POSITIONS - BOX.sum(axis=0))[chosen]
        energy, found = energy_and_forces(context)
        expected = np.zeros((3, 3))
        expected[chosen] = -2 * k * away
        assert energy == pytest.approx(k * (away**2).sum(), rel=1e-5)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    energy, found = energy_and_forces(context, groups={0})
    assert energy == 0
    assert not found.any()


def test_another_platform_is_announced_once():
    context = context_with(made())
    force_module._warn_of_another_platform.cache_clear()
    with pytest.warns(DeveloperWarning, match="for other platforms TorchForce is faster"):
        energy_and_forces(context)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        energy_and_forces(context)


def test_what_goes_wrong_in_python_is_said_by_openmm():
    class Raising(torch.nn.Module):
        def forward(self, positions, strength):
            raise ValueError("this module is made to fail")

    with pytest.raises(openmm.OpenMMException, match="this module is made to fail"):
        energy_and_forces(context_with(made(Raising())))
    with pytest.raises(openmm.OpenMMException, match="an atom 7, but the System has 3 particles"):
        energy_and_forces(context_with(made(particles=np.array([7]))))


class Failing(torch.nn.Module):
    def __init__(self, sentence: str) -> None:
        super().__init__()
        self.sentence = sentence

    def forward(self, positions, strength):
        raise ValueError(self.sentence)


def test_threads_that_fail_at_once_each_get_their_own_sentence():
    def fail(number: int) -> set[str]:
        context = context_with(made(Failing(f"number {number} " + "x" * 50 * number)))
        said = set()
        for _ in range(200):
            with pytest.raises(openmm.OpenMMException) as error:
                context.getState(energy=True)
            said.add(str(error.value))
        return said

    with ThreadPoolExecutor(4) as pool:
        for number, said in enumerate(pool.map(fail, range(4))):
            assert said == {f"CudaGraphForce: number {number} " + "x" * 50 * number}


INTERRUPTED = """
import signal, time
import openmm, torch
from openmm_density.energies.native_force import Computation, make_force

signal.signal(signal.SIGINT, signal.default_int_handler)  # which jobs in the background of a shell ignore

class Interrupted(torch.nn.Module):
    def forward(self, positions, strength):
        signal.raise_signal(signal.SIGINT)
        time.sleep(0)

system = openmm.System()
system.addParticle(1.0)
system.addForce(make_force(Computation(Interrupted(), None, False), "k", 1.0))
context = openmm.Context(
    system, openmm.VerletIntegrator(0.001), openmm.Platform.getPlatformByName("Reference")
)
context.setPositions([openmm.Vec3(0, 0, 0)])
try:
    try:
        context.getState(energy=True)
    except openmm.OpenMMException as error:
        print(error, flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    print("KeyboardInterrupt reached the script")
"""


def test_ctrl_c_reaches_the_script(forked):
    # In a process of its own: those that run tests side by side may not hear signals.
    run = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=300)
    assert run.stdout.splitlines() == [
        "CudaGraphForce: KeyboardInterrupt",
        "KeyboardInterrupt reached the script",
    ], run.stderr


@pytest.mark.parametrize("particles", [None, np.array([], dtype=np.int64), np.array([1, 4, 7])])
@pytest.mark.parametrize("periodic", [False, True])
def test_a_computation_is_read_as_it_was_written(particles, periodic):
    computation = Computation(PeriodicSpring() if periodic else Spring(), particles, periodic)
    found = from_text(as_text(computation))
    assert found.periodic is periodic
    if particles is None:
        assert found.particles is None
    else:
        assert found.particles is not None
        assert found.particles.dtype == np.int64
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


def test_another_process_reads_a_system_once_the_force_is_loaded(tmp_path, forked):
    path = tmp_path / "system.xml"
    path.write_text(openmm.XmlSerializer.serialize(system_of(3, made())))
    script = (
        "import openmm\n"
        "from openmm_density.energies import native_force\n"
        "native_force.load_force()\n"
        f"system = openmm.XmlSerializer.deserialize(open({str(path)!r}).read())\n"
        "print(native_force.CudaGraphForce.cast(system.getForce(0)).getGlobalParameterName(0))\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert (run.returncode, run.stdout.strip()) == (0, "k"), run.stderr


def test_a_computation_is_forgotten_with_its_forces():
    gc.collect()
    before = set(force_module._computations)
    system = system_of(3, made())
    copied = copy.deepcopy(system)
    assert len(set(force_module._computations) - before) == 2
    del system, copied
    gc.collect()
    assert set(force_module._computations) <= before


@pytest.mark.parametrize("platform", ["Reference", "CPU"])
def test_a_context_goes_on_without_the_force_that_is_removed_from_its_system(platform):
    context = context_with(made(), platform=platform)
    before = energy_and_forces(context)
    kept = set(force_module._computations)
    context.getSystem().removeForce(0)
    gc.collect()
    assert set(force_module._computations) == kept
    after = energy_and_forces(context)
    assert after[0] == before[0]
    np.testing.assert_array_equal(after[1], before[1])
    del context
    gc.collect()
    assert len(kept - set(force_module._computations)) == 1


def test_a_module_that_torchscript_cannot_write_is_named_when_the_system_is_written():
    class Unwritable(torch.nn.Module):
        def forward(self, positions, strength):
            return eval("strength"), positions

    with pytest.raises(openmm.OpenMMException, match="built-in function eval> is currently not supported"):
        openmm.XmlSerializer.serialize(system_of(3, made(Unwritable())))


def test_a_damaged_file_is_refused():
    text = openmm.XmlSerializer.serialize(system_of(3, made()))
    start = text.index('computation="') + len('computation="')
    with pytest.raises(openmm.OpenMMException, match="CudaGraphForce: "):
        openmm.XmlSerializer.deserialize(text[:start] + "AAAA" + text[start + 400 :])
    with pytest.raises(openmm.OpenMMException, match="newer openmm-density"):
        openmm.XmlSerializer.deserialize(
            text.replace('type="CudaGraphForce" version="3"', 'type="CudaGraphForce" version="4"')
        )


class SpringsOfTheirOwn(torch.nn.Module):
    """E = Σ k_i x_i²: a strength for each of three particles."""

    def forward(self, positions: torch.Tensor, strengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        k = strengths.to(positions)[:, None]
        return (strengths * (positions.to(strengths) ** 2).sum(dim=1)).sum(), -2 * k * positions


def test_a_force_of_several_strengths():
    names = ["k_0", "k_1", "k, the last"]
    force = make_force(Computation(SpringsOfTheirOwn(), None, False, 3), names, [1.0, 2.0, 3.0])
    assert [force.getGlobalParameterName(i) for i in range(force.getNumGlobalParameters())] == names
    assert [force.getGlobalParameterDefaultValue(i) for i in range(3)] == [1.0, 2.0, 3.0]
    squares = (np.array(POSITIONS) ** 2).sum(axis=1)
    read = openmm.XmlSerializer.deserialize(openmm.XmlSerializer.serialize(system_of(3, force)))
    context = context_with(CudaGraphForce.cast(copy.deepcopy(read.getForce(0))))
    for strengths in ([1.0, 2.0, 3.0], [4.0, 2.0, 0.5]):
        for name, strength in zip(names, strengths):
            context.setParameter(name, strength)
        energy, forces = energy_and_forces(context)
        assert energy == pytest.approx((strengths * squares).sum())
        np.testing.assert_allclose(forces, -2 * np.array(strengths)[:, None] * POSITIONS, rtol=1e-6)
    with pytest.raises(ValueError, match="takes 3 strengths, not 1"):
        make_force(Computation(SpringsOfTheirOwn(), None, False, 3), "k", 1.0)


def test_a_file_of_the_first_version_is_read():
    text = openmm.XmlSerializer.serialize(system_of(3, made()))
    start, end = text.index("<Strengths>"), text.index("</Strengths>") + len("</Strengths>")
    tag_end = text.rindex(">", 0, start)
    older = text[:tag_end] + ' parameter="k" strength="2.5">' + text[tag_end + 1 : start] + text[end:]
    older = older.replace('type="CudaGraphForce" version="3"', 'type="CudaGraphForce" version="1"')
    system = openmm.XmlSerializer.deserialize(older)
    force = CudaGraphForce.cast(system.getForce(0))
    assert force.getGlobalParameterName(0) == "k" and force.getGlobalParameterDefaultValue(0) == 2.5


def test_an_openmm_without_headers_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(openmm.version, "openmm_library_path", str(tmp_path / "lib"))
    with pytest.raises(BuildError, match=r"without its C\+\+ headers .*CustomCPPForceImpl.h"):
        compiled.force_source()
    with pytest.raises(BuildError, match=r"without its C\+\+ headers .*CudaContext.h"):
        compiled.cuda_source()


@pytest.mark.skipif(HAS_CUDA, reason="the CUDA platform works")
def test_the_backend_says_why_it_does_not_work_here():
    with pytest.raises(BackendUnavailable, match=r"CudaGraphForce.* does not work here: .*CUDA"):
        create_force(Spring(), "k", 2.5, periodic=False, name="x", backend="CudaGraphForce")
