"""What a fit asks of OpenMM's platforms."""

from types import SimpleNamespace

import openmm
import pytest

from openmm_density.base.errors import InputError
from openmm_density.fitting import platforms
from openmm_density.fitting.platforms import (
    check_platform,
    in_double_precision,
    platform_named,
    platform_properties,
)
from openmm_density.fitting.run_numbers import MOST_THREADS


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


@pytest.mark.parametrize("name", ["Reference", "CPU"])
def test_double_precision_is_that_of_reference_where_a_platform_has_none(name):
    platform, properties = in_double_precision(*platform_named(name, 1))
    assert platform.getName() == "Reference" and properties == {}


def test_a_platform_that_has_double_precision_is_asked_for_it(monkeypatch):
    asked = []
    monkeypatch.setattr("openmm_density.fitting.platforms._try", lambda *each: asked.append(each))
    gpu = SimpleNamespace(getPropertyNames=lambda: ("Precision", "DeterministicForces"))
    given = {"Precision": "mixed", "DeterministicForces": "true"}
    wanted = {**given, "Precision": "double"}
    assert in_double_precision(gpu, given) == (gpu, wanted) and asked == [(gpu, wanted)]

    def fails(*_):
        raise openmm.OpenMMException("This device does not support double precision")

    monkeypatch.setattr("openmm_density.fitting.platforms._try", fails)
    assert in_double_precision(gpu, given)[0].getName() == "Reference"
    assert given["Precision"] == "mixed"
