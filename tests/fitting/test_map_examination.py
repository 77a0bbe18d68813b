"""What a fit makes of its map before it begins, and where it puts the model in a map that was corrected."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from openmm_density import DensityMap, InputError
from openmm_density.fitting.fit_map import FitMap
from openmm_density.fitting.map_examination import examine_fitted, examine_start, expected_model
from openmm_density.maps.corrections import MapCorrections
from openmm_density.models import read_model
from openmm_density.validation.correlation import cc_mask
from openmm_density.validation.map_checks.coverage import IN_DENSITY

from ..conftest import PROJECT
from ..fragments import fragment
from ..small_models import ADK_CLOSED, ADK_OPEN

DATA = PROJECT / "tests" / "data" / "emd6374_frag"
RESOLUTION = 5.0
NOTHING = MapCorrections()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return fragment(tmp_path_factory.mktemp("fragment") / "model.pdb", residues=40)


@pytest.fixture(scope="module")
def a_map(model):
    return DensityMap.simulate(model.topology, model.positions, RESOLUTION, 1.25, noise=0.1)


def examined(model, read, corrections=NOTHING, place="auto"):
    found = examine_start(model, FitMap(read, RESOLUTION, corrections), place)
    assert found.cc == pytest.approx(cc_there(model, found.placement, corrections.apply(read)))
    return found.checks, found.placement


def cc_there(model, placement, density_map):
    positions = model.positions if placement is None else placement.moved(model.positions)
    return cc_mask(density_map, model.topology, positions, RESOLUTION)


def rmsd(a, b):
    return np.sqrt(((a - b) ** 2).sum(axis=1).mean())


def test_a_model_in_a_right_map_stays(a_map, model):
    checks, placement = examined(model, a_map)
    assert placement is None and checks.findings == []
    assert checks.figures.keys() == {"contrast", "box", "resolution", "place", "voxel_size", "handedness"}


@pytest.mark.parametrize("boxes", [(0.5, 0.5, 0.5), (1.5, 0, -2.5)])
def test_a_model_half_boxes_away_is_moved_back(a_map, model, boxes):
    away = replace(model, positions=model.positions + a_map.matrix @ (a_map.size * boxes))
    checks, placement = examined(away, a_map)
    assert checks.findings == []
    assert rmsd(placement.moved(away.positions), model.positions) < 0.3


def test_a_model_that_stays_is_the_one_expected(a_map, model):
    crystal = replace(model, space_group="P 21 21 21")
    for given in (model, crystal):
        fit_map = FitMap(a_map, RESOLUTION)
        expected, found = expected_model(given, fit_map, "auto"), examine_start(given, fit_map, "auto").model
        assert expected.space_group == found.space_group == ""
        assert np.array_equal(expected.positions, found.positions)
    assert expected_model(model, FitMap(a_map, RESOLUTION), "on") is None
    assert expected_model(model, FitMap(a_map, RESOLUTION, MapCorrections(voxel_size=1.3)), "auto") is None


def test_a_model_that_lay_in_a_map_of_a_wrong_voxel_size_is_moved_along(a_map, model):
    # 3 Å at the distance of this box.
    away = np.array([100.0, 0.0, 0.0])
    right = DensityMap(a_map.data, a_map.matrix, a_map.origin + away)
    wrong = right.with_voxel_size(1.25 * 1.03)
    centre = model.positions.mean(axis=0)
    lay = replace(model, positions=model.positions + 1.03 * (centre + away) - centre)
    checks, placement = examined(lay, wrong, MapCorrections(voxel_size=1.25))
    assert 2.5 < placement.moved_by < 5.0
    assert rmsd(placement.moved(lay.positions), model.positions + away) < 0.3
    assert checks.findings == []
    _, stays = examined(lay, wrong, MapCorrections(voxel_size=1.25), place="off")
    assert stays is None


def test_a_model_beside_its_density_is_put_there(a_map, model):
    beside = replace(model, positions=model.positions + np.array([4.0, -4.0, 3.0]))
    checks, placement = examined(beside, a_map)
    assert placement.coverage_before > IN_DENSITY
    assert rmsd(placement.moved(beside.positions), model.positions) < 0.5
    assert checks.findings == []
    doubted, stays = examined(beside, a_map, place="off")
    assert stays is None
    assert [finding.check for finding in doubted.findings] == ["place"]


def test_a_model_that_a_wrong_voxel_size_put_beside_its_density_is_placed_and_the_size_doubted():
    read = DensityMap.from_file(DATA / "emd6374.mrc.gz")
    wrong = replace(read, matrix=read.matrix * 1.03)
    native = read_model(DATA / "6374_native.pdb")
    _, checks, placement, _ = examine_start(native, FitMap(wrong, 2.9), "auto")
    assert placement.moved_by > 1.0 and placement.coverage_before > IN_DENSITY
    assert [finding.check for finding in checks.findings] == ["voxel_size"]


def test_a_model_is_placed_anew_in_a_map_that_is_mirrored(a_map, model):
    mirrored = a_map.mirrored()
    checks, placement = examined(model, mirrored)
    assert [finding.check for finding in checks.findings] == ["handedness"] and placement is None
    aside = replace(model, positions=model.positions + np.array([6.0, -5.0, 4.0]))
    checks, placement = examined(aside, mirrored, MapCorrections(mirror=True))
    assert checks.findings == []
    assert rmsd(placement.moved(aside.positions), model.positions) < 0.5


def test_no_model_is_placed_in_a_map_of_inverted_contrast(a_map, model):
    away = replace(model, positions=model.positions + 80.0)
    with pytest.raises(InputError, match="contrast is inverted"):
        examined(away, a_map.inverted(), place="on")


def test_a_fitted_model_that_was_stretched_with_its_map_is_told(a_map, model):
    centre = model.positions.mean(axis=0)
    stretched = centre + (model.positions - centre) * 1.025
    wrong = replace(a_map, matrix=a_map.matrix * 1.025, origin=centre + (a_map.origin - centre) * 1.025)
    before = SimpleNamespace(
        model=model, topology=model.topology, positions=model.positions, input_positions=lambda there: there
    )
    result = SimpleNamespace(relaxed=model.positions, final=stretched, cc_final=0.98)
    checks = examine_fitted(FitMap(wrong, RESOLUTION), before, result).result()
    assert [finding.check for finding in checks.findings] == ["stretching"]
    assert "likelier to measure 1.25 Å than 1.28" in checks.doubts[0]


def test_a_model_of_another_form_stays_in_its_frame():
    """Open adenylate kinase fits the map of the closed form a little better elsewhere, from where it would close less well."""
    opened, closed = read_model(ADK_OPEN), read_model(ADK_CLOSED)
    target = DensityMap.simulate(closed.topology, closed.positions, 5.0, 1.5, noise=0.1, seed=1)
    _, checks, placement, _ = examine_start(opened, FitMap(target, 5.0), "auto")
    assert placement is None and checks.findings == []
    assert checks.figures["place"]["cc_placed"] > checks.figures["place"]["cc"] + 0.2
