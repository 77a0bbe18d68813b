"""The strength that half maps allow."""

from dataclasses import replace

import pytest

from openmm_density.errors import InputError
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
    monkeypatch.setattr(half_maps, "_AT_STRENGTH", 240)
    monkeypatch.setattr(half_maps, "_COOLING", 120)
    model, halves = parts
    scan = scan_strengths(model, halves, RESOLUTION, PROTOCOL, strengths=(5, 40, 400), threads=1)
    assert scan.strengths == [5.0, 40.0, 400.0] and scan.chosen in scan.strengths
    assert scan.work[0] < scan.work[-1]
    # Noise of its own is what the other half has more of.
    assert scan.work[-1] - scan.free[-1] > 0.03
    best = max(scan.free)
    index = scan.strengths.index(scan.chosen)
    assert scan.free[index] >= best - half_maps.TOLERANCE
    assert all(free < best - half_maps.TOLERANCE for free in scan.free[:index])
    assert StrengthScan(**scan.as_dict()) == scan


def test_what_cannot_be_scanned(parts):
    model, halves = parts
    other = replace(halves[1], data=halves[1].data[1:])
    with pytest.raises(InputError, match="halves of one reconstruction"):
        scan_strengths(model, (halves[0], other), RESOLUTION, PROTOCOL)
    for strengths in ((), (5, 5), (10, 5), (0, 5)):
        with pytest.raises(InputError, match="rise"):
            scan_strengths(model, halves, RESOLUTION, PROTOCOL, strengths=strengths)
