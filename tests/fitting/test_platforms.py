"""What a fit asks of OpenMM's platforms."""

from types import SimpleNamespace

import openmm
import pytest

from openmm_density.errors import InputError
from openmm_density.fitting import platforms
from openmm_density.fitting.platforms import MOST_THREADS, check_platform, platform_properties


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


def test_a_platform_without_a_device_is_told(monkeypatch):
    monkeypatch.setattr(platforms, "platform_properties", lambda *_: {"Device": "none"})
    with pytest.raises(
        InputError, match=r'platform="Reference" does not run here \(.*Device.*\): use another'
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
