"""A map whose voxel size, handedness or sign is wrong, put right when it is read."""

import numpy as np
import pytest

from openmm_density import DensityMap, InputError
from openmm_density.maps.corrections import MapCorrections

STEPS = np.diag([1.0, 1.2, 1.5])
TRICLINIC = np.array([[1.0, 0.2, 0.1], [0.0, 1.2, 0.3], [0.0, 0.0, 1.5]])


def a_map(matrix=STEPS, origin=(-4.0, 2.4, 30.0)):
    return DensityMap(np.random.default_rng(0).normal(size=(5, 4, 3)), matrix, origin)


@pytest.mark.parametrize("matrix", [STEPS, TRICLINIC])
def test_another_voxel_size_keeps_the_index_of_the_cartesian_zero(matrix):
    found = a_map(matrix).with_voxel_size((1.1, 1.3, 1.4))
    assert np.allclose(found.voxel_size, (1.1, 1.3, 1.4))
    assert np.allclose(found.to_index(np.zeros((1, 3))), a_map(matrix).to_index(np.zeros((1, 3))))
    assert np.array_equal(found.data, a_map(matrix).data)


def test_a_map_placed_by_nstart_and_one_placed_by_origin_stay_in_one_place(tmp_path):
    map_of = a_map(np.eye(3), (5.0, -3.0, 7.0))
    map_of.write(tmp_path / "map.mrc")
    read = DensityMap.from_file(tmp_path / "map.mrc").with_voxel_size(1.03)
    assert np.allclose(read.origin, (5.15, -3.09, 7.21), atol=1e-5)


def test_one_voxel_size_for_three_different_ones_is_refused():
    with pytest.raises(InputError, match=r"1 × 1.2 × 1.5 Å: give three"):
        a_map().with_voxel_size(1.1)
    with pytest.raises(InputError, match="voxel_size must be a positive length"):
        a_map().with_voxel_size(-1.1)


def test_a_mirror_image_stays_in_its_box_and_comes_back():
    original = a_map()
    mirrored = original.mirrored()
    last = original.size[2] - 1
    for i, j, k in ((0, 0, 0), (2, 1, 3)):
        place = original.origin + original.matrix @ (i, j, last - k)
        assert mirrored.value_at(place[None])[0] == pytest.approx(float(original.data[k, j, i]))
    assert np.array_equal(mirrored.mirrored().data, original.data)


def test_a_mirror_image_on_a_triclinic_grid_is_one():
    skew = a_map(TRICLINIC)
    mirrored = skew.mirrored()
    places = skew.origin + np.array([[0.3, 1.2, 2.1], [1.4, 2.2, 3.3]]) @ TRICLINIC.T
    opposite = 2 * (skew.origin + TRICLINIC @ ((skew.size - 1) / 2)) - places
    assert np.allclose(mirrored.value_at(places), skew.value_at(opposite))


def test_corrections_are_made_together_and_told():
    corrected = MapCorrections((1.1, 1.3, 1.4), mirror=True, invert=True)
    found = corrected.apply(a_map())
    assert np.array_equal(found.data, -a_map().data[::-1])
    told = corrected.sentences(found)
    assert "1.1 × 1.3 × 1.4 Å" in told[0] and "mirrored" in told[1] and "sign" in told[2]
    nothing = MapCorrections()
    original = a_map()
    assert (
        corrected
        and not nothing
        and nothing.apply(original) is original
        and nothing.sentences(original) == []
    )
