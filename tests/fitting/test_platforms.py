"""What a fit asks of OpenMM's platforms."""

import openmm
import pytest

from openmm_density.base.errors import InputError
from openmm_density.fitting import platforms
from openmm_density.fitting.platforms import (
    check_platform,
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
