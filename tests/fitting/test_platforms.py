"""What a fit asks of OpenMM's platforms."""

import openmm
import pytest

from openmm_density.base.errors import InputError
from openmm_density.fitting import platforms
from openmm_density.fitting.platform_probe import platform_beside
from openmm_density.fitting.platforms import (
    check_platform,
    platform_of_command,
    platform_properties,
)
from openmm_density.fitting.run_numbers import MOST_THREADS


def test_every_platform_here_takes_them():
    for number in range(openmm.Platform.getNumPlatforms()):
        platform = openmm.Platform.getPlatform(number)
        system = openmm.System()
        system.addParticle(1.0)
        wanted = platform_properties(platform, 1)
        context = openmm.Context(system, openmm.VerletIntegrator(0.001), platform, wanted)
        for name, value in wanted.items():
            assert platform.getPropertyValue(context, name).lower() == value


def test_a_platform_without_a_device_is_told(monkeypatch):
    monkeypatch.setattr(platforms, "platform_properties", lambda *_: {"Device": "none"})
    platforms._try_named.cache_clear()
    with pytest.raises(
        InputError, match=r'platform must run on this machine \(.*Device.*\), found "Reference": use another'
    ):
        check_platform("Reference")


@pytest.mark.parametrize(
    ("platform", "threads", "named"),
    [
        ("Abacus", None, "use one of Reference, CPU"),
        ("CPU", 0, "threads"),
        ("CPU", MOST_THREADS + 1, "threads"),
    ],
)
def test_what_no_platform_does_is_refused(platform, threads, named):
    with pytest.raises(InputError, match=named):
        check_platform(platform, threads)


@pytest.mark.parametrize(
    ("named", "here", "failure", "problem", "taken", "said"),
    [
        (None, ["Reference", "CPU", "OpenCL", "HIP"], None, None, "CPU", None),
        (None, ["Reference", "CPU", "CUDA"], None, None, "CUDA", None),
        (None, ["Reference", "CPU", "CUDA"], "no device", None, "CPU", "(no device)"),
        (None, ["Reference", "CPU", "CUDA"], None, "no Triton", "CPU", "(no Triton)"),
        ("OpenCL", ["Reference", "CPU", "OpenCL", "CUDA"], None, None, "OpenCL", None),
        ("CPU", ["Reference", "CPU", "CUDA"], None, None, "CPU", None),
    ],
)
def test_a_command_runs_on_cuda_where_it_and_its_forces_run(
    named, here, failure, problem, taken, said, monkeypatch
):
    tried, heard = [], []
    monkeypatch.setattr(platforms, "platform_names", lambda: here)
    monkeypatch.setattr(platforms, "failure_of", lambda name: tried.append(name) or failure)
    monkeypatch.setattr(platforms, "own_backend", lambda name: ("CudaGraphForce", problem))
    assert platform_of_command(named, heard.append) == taken
    assert bool(tried) == (named is None and "CUDA" in here)
    assert [said in sentence for sentence in heard] == [True] * (said is not None)


def test_a_command_refuses_a_platform_that_is_not_here():
    with pytest.raises(InputError, match='found "Abacus": use one of'):
        platform_of_command("Abacus", print)


def test_another_process_finds_the_same():
    assert platform_beside(lambda _: None) == platform_of_command(None, lambda _: None)
