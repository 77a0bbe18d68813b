"""A look at the map: real ones pass, and each way of being wrong is named."""

import re
from dataclasses import replace

import numpy as np
import pytest

from openmm_density import DensityMap, InputError
from openmm_density.models import read_model
from openmm_density.validation.map_checks import (
    Finding,
    MapChecks,
    check_map_units,
    check_map_with_model,
    check_stretching,
)
from openmm_density.validation.map_checks.detail import spectrum_end

from ..conftest import PROJECT
from ..fragments import fragment

DATA = PROJECT / "tests" / "data"

RESOLUTION = 4.0

REAL = [
    ("emd3488_5ni1/emd_3488.mrc", 3.2, "emd3488_5ni1/5ni1_updated.cif"),
    ("emd5925_frag/emd5925.mrc.gz", 3.64, "emd5925_frag/5925_native.pdb"),
    ("emd6187_kinesin/chain_K_box.ccp4", 5.0, "emd6187_kinesin/chain_K_box_complete.pdb"),
    ("emd6374_frag/emd6374.mrc.gz", 2.9, "emd6374_frag/6374_native.pdb"),
    ("emd21457_ntd/emd_21457_seg.mrc", 3.2, "emd21457_ntd/6vyb_Ndom.pdb"),
    ("qr_6i5a/6i5a_box.ccp4", 2.3, "qr_6i5a/6i5a_box_complete.pdb"),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return fragment(tmp_path_factory.mktemp("fragment") / "model.pdb", residues=60)


@pytest.fixture(scope="module")
def a_map(model):
    return DensityMap.simulate(model.topology, model.positions, RESOLUTION, 1.0, noise=0.2, margin=12.0)


def checked(density_map, model, positions=None, resolution=RESOLUTION):
    positions = model.positions if positions is None else positions
    return check_map_with_model(density_map, model.topology, positions, resolution)


def only(checks, name):
    assert [finding.check for finding in checks.findings] == [name]
    return checks.findings[0]


@pytest.mark.parametrize(("path", "resolution", "of"), REAL)
def test_nothing_is_said_of_real_maps(path, resolution, of):
    density_map, model = DensityMap.from_file(DATA / path), read_model(DATA / of)
    check_map_units(density_map, model.topology, model.positions)
    assert checked(density_map, model, resolution=resolution).findings == []


def test_nothing_is_said_of_a_model_that_has_yet_to_move(a_map, model):
    assert checked(a_map, model).findings == []
    assert checked(a_map, model, model.positions + np.array([1.5, -1.0, 0.8])).findings == []


@pytest.mark.parametrize("error", [0.97, 1.03])
def test_a_voxel_size_that_is_off_by_3_percent_is_found(a_map, model, error):
    wrong = a_map.with_voxel_size(error)
    centre = model.positions.mean(axis=0)
    checks = checked(wrong, model, model.positions + centre * (error - 1))
    assert not only(checks, "voxel_size").is_error
    assert checks.figures["voxel_size"]["scale"] == pytest.approx(error, abs=0.005)
    assert checks.figures["voxel_size"]["voxel_size"] == pytest.approx([1.0] * 3, abs=0.005)
    assert checks.figures["voxel_size"]["cc_scaled"] > checks.figures["voxel_size"]["cc"]
    assert "pass voxel_size=" in checks.doubts[0]


def test_a_voxel_size_that_is_off_is_found_in_a_real_map():
    density_map = DensityMap.from_file(DATA / "emd6374_frag/emd6374.mrc.gz")
    model = read_model(DATA / "emd6374_frag/6374_native.pdb")
    right = density_map.voxel_size[0]
    centre = model.positions.mean(axis=0)
    checks = checked(
        density_map.with_voxel_size(1.03 * right), model, model.positions + 0.03 * centre, resolution=2.9
    )
    assert only(checks, "voxel_size")
    assert checks.figures["voxel_size"]["voxel_size"][0] == pytest.approx(right, rel=0.01)


def test_a_model_that_a_wrong_voxel_size_put_beside_its_density_is_told_of():
    density_map = DensityMap.from_file(DATA / "emd6374_frag/emd6374.mrc.gz")
    model = read_model(DATA / "emd6374_frag/6374_native.pdb")
    wrong = replace(density_map, matrix=density_map.matrix * 1.03, origin=density_map.origin * 1.03)
    checks = checked(wrong, model, resolution=2.9)
    assert [finding.check for finding in checks.findings] == ["place", "voxel_size"]
    place = checks.figures["place"]
    assert place["cc"] < 0.4 and place["cc_placed"] > 0.7 and place["moved_by"] > 1.0
    assert f"moved by {place['moved_by']:.1f} Å" in checks.doubts[0] and 'place="on"' in checks.doubts[0]
    there = model.positions @ np.array(place["rotation"]).T + place["shift"]
    found = checked(wrong, model, there, resolution=2.9)
    assert only(found, "voxel_size")
    right = density_map.voxel_size[0]
    assert checks.figures["voxel_size"]["voxel_size"][0] == pytest.approx(right, rel=0.01)


def test_a_model_of_another_form_is_not_said_to_lie_beside_its_density(a_map, model):
    """The fragment with its second half turned about its middle: no place of all fits well."""
    middle = model.positions[len(model.positions) // 2]
    turned = model.positions.copy()
    half = slice(len(turned) // 2, None)
    turned[half] = middle + (turned[half] - middle) * (1, -1, -1)
    checks = checked(a_map, model, turned + np.array([3.0, 3.0, -3.0]))
    assert checks.figures["place"]["cc"] < 0.45
    assert all(finding.check != "place" for finding in checks.findings)


def test_inverted_contrast_is_an_error_wherever_the_model_is(a_map, model):
    for away in (0.0, 100.0):
        checks = checked(a_map.inverted(), model, model.positions + away)
        assert only(checks, "contrast").is_error
        with pytest.raises(InputError, match=r"contrast is inverted.*pass invert=True") as refused:
            checks.refuse_errors()
        assert "pass --invert, or" in refused.value.spelled({"invert": "--invert"})
        assert "model that correlates" in refused.value.found or "skewness" in refused.value.found


def test_voxels_in_nm_are_named(a_map, model):
    with pytest.raises(InputError, match=r"voxel size of 0.1 Å looks like nm.*voxel_size=1[,. ]"):
        check_map_units(a_map.with_voxel_size(0.1), model.topology, model.positions)
    check_map_units(a_map, model.topology, model.positions)


@pytest.mark.parametrize("resolution", [20.0, 5.4])
def test_a_resolution_far_coarser_than_what_map_and_model_agree_to_is_doubted(a_map, model, resolution):
    checks = checked(a_map, model, resolution=resolution)
    assert only(checks, "resolution").sentence.startswith(f"a resolution of {resolution:g} Å was given")


def test_a_resolution_nearly_right_is_not_doubted(a_map, model):
    assert checked(a_map, model, resolution=1.2 * RESOLUTION).findings == []


def test_a_voxel_size_that_is_too_large_is_named_before_the_resolution(a_map, model):
    wrong, centre = a_map.with_voxel_size(1.03), model.positions.mean(axis=0)
    moved = model.positions + 0.03 * centre
    found = only(checked(wrong, model, moved, resolution=1.2 * RESOLUTION), "voxel_size").sentence
    assert found.startswith("the voxel size looks wrong by")
    assert found.endswith("check resolution too: at one that is too coarse a larger model fits better.")


def test_a_resolution_finer_than_all_that_the_map_holds_is_doubted(model):
    coarse = DensityMap.simulate(model.topology, model.positions, 8.0, 1.0, noise=0.2, margin=16.0)
    checks = checked(coarse, model, resolution=2.0)
    assert "no detail finer than" in only(checks, "resolution").sentence
    assert checks.figures["resolution"]["spectrum_ends"] == pytest.approx(8.0, rel=0.1)
    assert checked(coarse, model, resolution=8.0).findings == []


@pytest.mark.parametrize(
    ("path", "resolution"),
    [("xray_1g8a_P21/composite_omit_map.mtz", 1.8), ("qr_6i5a/6i5a_box.ccp4", 2.3)],
)
def test_the_spectrum_of_real_maps_ends_at_their_resolution(path, resolution):
    assert spectrum_end(DensityMap.from_file(DATA / path)) == pytest.approx(resolution, rel=0.1)


@pytest.mark.parametrize("axes", [(0, 1, 2), (0,)])
def test_a_rolled_map_is_an_error(a_map, model, axes):
    rolled = replace(a_map, data=np.roll(a_map.data, [a_map.shape[axis] // 2 for axis in axes], axes))
    checks = checked(rolled, model)
    assert only(checks, "box").is_error and "cuts the molecule in two" in checks.doubts[0]
    assert checks.figures["box"]["half_box"] == [("z", "y", "x")[axis] for axis in axes][::-1]
    assert checks.figures["box"]["cc"] > 0.9


def test_a_rolled_map_is_known_by_its_faces_where_the_model_is_elsewhere(a_map, model):
    rolled = replace(a_map, data=np.roll(a_map.data, a_map.shape[0] // 2, 0))
    checks = checked(rolled, model, model.positions + 200.0)
    assert only(checks, "box").is_error and checks.figures["box"]["half_box"] == ["z"]


def test_a_model_that_is_off_by_half_the_box_is_named(a_map, model):
    checks = checked(a_map, model, model.positions - a_map.matrix @ (a_map.size / 2))
    assert not only(checks, "box").is_error and "half the map's box along x, y, z" in checks.doubts[0]


@pytest.mark.parametrize("shift", [(100, 0, 0), (0, -300, 100)])
def test_no_map_is_refused_for_where_the_model_is(a_map, model, shift):
    assert not any(finding.is_error for finding in checked(a_map, model, model.positions + shift).findings)


def test_a_mirrored_map_is_named_wherever_the_model_is_in_it(a_map, model):
    checks = checked(a_map.mirrored(), model)
    finding = only(checks, "handedness")
    assert not finding.is_error and "pass mirror=True if" in finding.sentence
    assert checks.figures["handedness"]["cc_mirrored"] > 0.9 > 0.5 > checks.figures["handedness"]["cc"]


def test_a_real_map_that_is_mirrored_is_named():
    density_map = DensityMap.from_file(DATA / "emd5925_frag/emd5925.mrc.gz").mirrored()
    model = read_model(DATA / "emd5925_frag/5925_native.pdb")
    assert only(checked(density_map, model, resolution=3.64), "handedness")


def test_a_model_that_fits_neither_hand_is_no_sign_of_a_mirror(a_map, model):
    """Coordinates of another fold: the fragment from its end to its beginning, so to speak."""
    other = model.positions.mean(axis=0) + (model.positions - model.positions.mean(axis=0))[:, [1, 2, 0]] * (
        0.8,
        1.1,
        1.2,
    )
    assert all(finding.check != "handedness" for finding in checked(a_map, model, other).findings)


@pytest.mark.parametrize("stretched", [0.977, 1.0, 1.023])
def test_a_model_that_was_stretched_as_a_whole_names_the_voxel_size(a_map, model, stretched):
    noise = np.random.default_rng(0).normal(scale=0.02, size=model.positions.shape)
    checks = check_stretching(a_map, model.topology, model.positions, model.positions * stretched + noise)
    assert checks.figures["stretching"]["change"] == pytest.approx(np.log(stretched), abs=2e-3)
    if stretched == 1.0:
        assert checks.findings == []
    else:
        likely = re.search(r"likelier to measure ([\d.]+)", only(checks, "stretching").sentence)[1]
        assert float(likely) == pytest.approx(1 / stretched, abs=5e-3)


def test_a_model_of_two_halves_that_part_is_no_sign_of_a_voxel_size(a_map, model):
    """As domains do when they open: what is far becomes farther, what is near stays."""
    middle = model.positions.mean(axis=0)
    atoms = list(model.topology.atoms())
    upper = {a.residue.index for a in atoms if a.name == "CA" and model.positions[a.index][0] > middle[0]}
    parted = model.positions + [[4.0 * (a.residue.index in upper), 0.0, 0.0] for a in atoms]
    checks = check_stretching(a_map, model.topology, model.positions, parted)
    assert checks.findings == []

    def later(fitted, scale):
        stretching = check_stretching(a_map, model.topology, model.positions, fitted)
        return MapChecks({"voxel_size": {"scale": scale}}) + stretching

    wrong = Finding("voxel_size", "the voxel size looks wrong by 3%")
    doubted = MapChecks({"voxel_size": {"scale": 1.03}}, [wrong])
    assert doubted.with_later(later(parted, 1.0)) == []
    # It stays where a model gave way by less than is told by itself, did not follow the map, or was kept as it was.
    undecided = [later(model.positions * 1.011, 1.005), later(parted, 1.028), later(model.positions, 1.0)]
    assert [doubted.with_later(each) for each in (MapChecks(), *undecided)] == [[wrong]] * 4


def test_a_fitted_model_does_not_lie_beside_its_density_any_more():
    beside = Finding("place", "the model lies beside its density (CC 0.43, and 0.78 where it is moved)")
    doubted = MapChecks({"place": {"cc": 0.43, "cc_placed": 0.78}}, [beside])
    later = MapChecks({"place": None})
    assert [doubted.with_later(later, cc) for cc in (0.5, 0.78)] == [[beside], []]
    # As where the fit was interrupted, or the model lies beside its density yet.
    assert doubted.with_later(MapChecks()) == [beside]
    still = MapChecks({"place": {"cc": 0.6, "cc_placed": 0.9}}, [beside])
    assert doubted.with_later(still, 0.6) == [beside]
    # That a fit took the model out of its density is told, wherever it lay before.
    left = Finding("place", "the model lies beside its density (CC 0.80, and 0.99 where it is moved)")
    out_of_it = MapChecks({"place": {"cc": 0.8, "cc_placed": 0.99}}, [left])
    assert [each.with_later(out_of_it, 0.8) for each in (doubted, later, MapChecks())] == [[left]] * 3


def test_a_resolution_that_is_too_coarse_is_named_before_the_voxel_size_that_makes_up_for_it():
    """On voxels that hold no finer detail, so that it is not known to where map and model agree."""
    model = read_model(PROJECT / "examples" / "data" / "adk_closed.pdb")
    coarse = DensityMap.simulate(model.topology, model.positions, RESOLUTION, RESOLUTION / 2)
    assert checked(coarse, model).findings == []
    found = only(checked(coarse, model, resolution=1.6 * RESOLUTION), "voxel_size").sentence
    assert found.startswith("the resolution of 6.4 Å looks too coarse, or else the voxel size wrong")
    assert "check resolution first, then the map's header, and pass voxel_size=" in found
