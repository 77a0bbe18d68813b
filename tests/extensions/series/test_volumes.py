"""Volumes that can be a series, and such as cannot."""

from pathlib import Path

import numpy as np
import pytest

from openmm_density import DensityMap
from openmm_density.base.errors import InputError
from openmm_density.extensions.series.volumes import (
    VolumeFacts,
    checked_volumes,
    notes_on_volumes,
    order_doubt,
)


@pytest.fixture
def files(tmp_path):
    paths = [tmp_path / f"vol_{number}.mrc" for number in (1, 2, 10)]
    for path in paths:
        path.write_bytes(b"")
    return paths


def test_they_are_taken_in_the_order_given(files):
    assert checked_volumes([str(each) for each in files[::-1]]) == (files[::-1], [])


def test_each_has_a_free_map_or_none_has(files):
    with pytest.raises(InputError, match="free_maps must be as many as the 2 volumes, found 1 of them"):
        checked_volumes(files[:2], files[2:])


def test_one_volume_is_no_series(files):
    with pytest.raises(InputError, match="maps must be two volumes or more, found 1 of them"):
        checked_volumes(files[:1])


@pytest.mark.parametrize("maps, free", [((0, 1, 0), ()), ((0, 1), (2, 0))])
def test_a_volume_is_named_once(files, maps, free):
    with pytest.raises(InputError, match=r"vol_1\.mrc: it is named twice"):
        checked_volumes([files[n] for n in maps], [files[n] for n in free])


def test_a_link_to_a_volume_is_that_volume(files, tmp_path):
    (tmp_path / "other.mrc").symlink_to(files[0])
    with pytest.raises(InputError, match=r"other\.mrc: it is named twice"):
        checked_volumes([files[0], tmp_path / "other.mrc"])


def test_a_file_that_is_not_there_is_named(files, tmp_path):
    with pytest.raises(InputError, match=r"vol_3\.mrc: there is no such file"):
        checked_volumes([*files, tmp_path / "vol_3.mrc"])


@pytest.mark.parametrize(
    "names, doubted",
    [
        ("vol_1 vol_2 vol_10", False),
        ("vol_10 vol_2 vol_1", False),
        ("vol_1 vol_10 vol_2", True),
        ("closed open middle", False),
        ("a_1 b_1", False),
    ],
)
def test_an_order_is_doubted_that_is_not_that_of_the_numbers(names, doubted):
    said = order_doubt([Path(f"{name}.mrc") for name in names.split()])
    assert (said is not None) == doubted


def test_the_doubt_names_the_first_that_stands_elsewhere():
    said = order_doubt([Path(name) for name in ("vol_1.mrc", "vol_10.mrc", "vol_2.mrc")])
    assert "in which vol_10.mrc stands where the numbers in the names would have vol_2.mrc" in said


def facts(size, step, scale=1.0):
    data = np.random.default_rng(0).normal(size=(size, size, size)) * scale
    return VolumeFacts.of(DensityMap(data, np.eye(3) * step, np.zeros(3)))


def test_what_a_series_can_bear_is_noted():
    paths = [Path("a.mrc"), Path("b.mrc")]
    assert notes_on_volumes(paths, [facts(8, 1.0), facts(8, 1.0, 2.0)]) == []
    (boxes,) = notes_on_volumes(paths, [facts(8, 1.0), facts(10, 1.2)])
    assert (
        "different boxes or voxels (a.mrc 8 x 8 x 8 voxels of 1 Å, b.mrc 10 x 10 x 10 voxels of 1.2 Å)"
        in boxes
    )
    (contrast,) = notes_on_volumes(paths, [facts(8, 1.0), facts(8, 1.0, 7.0)])
    assert "different contrast (the values of b.mrc spread 7.0 times as much as those of a.mrc)" in contrast
