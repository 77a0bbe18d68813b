"""The strength that half maps allow."""

from dataclasses import replace

import pytest

from openmm_density.base.errors import InputError
from openmm_density.fitting import find_protocol, half_maps
from openmm_density.fitting.half_maps import StrengthScan, scan_strengths

from ..fragments import RESOLUTION, fragment, map_of

PROTOCOL = replace(find_protocol("quick", RESOLUTION), minimize_first=50)


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fragment")
    model = fragment(folder / "model.pdb", (1.0, -0.8, 0.6), residues=16)
    return model, tuple(map_of(16, 0.7, seed, folder) for seed in (1, 2))


def test_a_stronger_pull_fits_the_half_that_it_sees(parts, monkeypatch):
    monkeypatch.setattr(half_maps, "STEPS_AT_EACH", 120)
    monkeypatch.setattr(half_maps, "COOLING_STEPS", 60)
    model, halves = parts
    scan = scan_strengths(model, halves, RESOLUTION, PROTOCOL, strengths=(5, 40, 400), threads=1)
    assert scan.strengths == [5.0, 40.0, 400.0] and scan.chosen in scan.strengths
    assert scan.work[0] < scan.work[-1]
    # Noise of its own is what the other half has more of: with 8 seeds 0.035 to 0.120.
    assert scan.work[-1] > scan.free[-1]
    best = max(scan.free)
    index = scan.strengths.index(scan.chosen)
    assert scan.free[index] >= best - half_maps.TOLERANCE
    assert all(free < best - half_maps.TOLERANCE for free in scan.free[:index])
    assert scan.steps_each == 180 and scan.wall_seconds > 0
    assert scan.still_rises == (scan.chosen == 400)
    assert StrengthScan(**scan.as_dict()) == scan
    # Around the model as it ends the halves agree in what is not noise.
    correlation = scan.fsc["correlation"]
    assert correlation[0] > 0.9 > 0.5 > correlation[-1]
    assert scan.fsc_falls == (min(correlation) < 0.143)
    assert 1 / scan.fsc["frequency"][-1] <= scan.fsc_resolution < 2 * RESOLUTION


def test_whether_the_free_correlation_still_rises():
    def scan(*free, chosen):
        return StrengthScan([5.0, 10.0, 20.0][: len(free)], list(free), list(free), chosen)

    assert scan(0.5, 0.6, 0.7, chosen=20.0).still_rises
    assert not scan(0.5, 0.6, 0.55, chosen=10.0).still_rises
    assert not scan(0.5, chosen=5.0).still_rises


def test_what_cannot_be_scanned(parts):
    model, halves = parts
    with pytest.raises(InputError, match="are the same map"):
        scan_strengths(model, (halves[0], replace(halves[0], data=2 * halves[0].data)), RESOLUTION, PROTOCOL)
    other = replace(halves[1], data=halves[1].data[1:])
    with pytest.raises(InputError, match="halves of one reconstruction"):
        scan_strengths(model, (halves[0], other), RESOLUTION, PROTOCOL)
    for strengths in ((), (5, 5), (10, 5), (0, 5)):
        with pytest.raises(InputError, match="rise"):
            scan_strengths(model, halves, RESOLUTION, PROTOCOL, strengths=strengths)


def test_the_search_holds_what_the_fit_holds_at_its_end_from_near_and_from_far():
    for name, resolution in (("standard", 6.0), ("quick", 6.0), ("standard", 3.0), ("gentle", 4.0)):
        protocol = find_protocol(name, resolution)
        limited = replace(protocol, final_strength="auto", final_strength_limit=3.0)
        search = half_maps._protocol_of_scan(limited, (5.0, 10.0))
        assert search.finishing() is search
        for cc in (0.1, 0.7):
            stages = search.from_start(cc).stages
            assert [stage.name for stage in stages] == ["warm up", "at 5", "cool at 5", "at 10", "cool at 10"]
            last = protocol.from_start(cc).stages[-1]
            assert {stage.restraints for stage in stages} == {last.restraints}
            assert stages[-1].strength[1] * search.strength == 10.0
