"""What viewers open lies in the folder of the fit, where they find it, and where it was."""

from __future__ import annotations

import shutil

import gemmi
import mrcfile
import numpy as np
import pytest

from openmm_density import DensityMap
from openmm_density.models import read_model
from openmm_density.report import OutputFolder
from openmm_density.report.viewers import (
    write_viewer_scripts,
)
from openmm_density.report.viewers.shown_files import on_whole_steps

from .chimerax_commands import commands_of


def wave(points):
    """Return a density that varies over 8 to 12 Å, at points of shape (..., 3)."""
    return sum(
        np.cos(2 * np.pi * points[..., axis] / length) for axis, length in enumerate((8.0, 10.0, 12.0))
    )


def wave_map(origin, step=1.0, n=24):
    z, y, x = np.indices((n, n, n))
    matrix = np.diag([step] * 3)
    return DensityMap(wave(np.stack([x, y, z], axis=-1) @ matrix.T + origin), matrix, np.array(origin))


def test_a_map_off_the_grid_is_interpolated_and_one_on_it_stays():
    on_grid = wave_map([3.0, -5.0, 0.0])
    assert on_whole_steps(on_grid) is on_grid
    moved = on_whole_steps(wave_map([3.4, -5.3, 0.2]))
    assert moved.origin.tolist() == [3.0, -5.0, 0.0]
    inside = (slice(4, -4),) * 3
    np.testing.assert_allclose(moved.data[inside], on_grid.data[inside], atol=0.02)


def test_a_written_map_begins_at_whole_steps_for_programs_that_read_no_origin(tmp_path):
    path = tmp_path / "map.mrc"
    wave_map([3.0, -5.0, 2.0], step=0.5).write(path)
    with mrcfile.open(path) as file:
        assert [int(file.header[f"n{axis}start"]) for axis in "xyz"] == [6, -10, 4]
    # gemmi reads NSTART only, and takes the box for a cell.
    grid = gemmi.read_ccp4_map(str(path), setup=True).grid
    value = grid.interpolate_value(gemmi.Position(7.0, -1.0, 6.0))
    assert value == pytest.approx(wave(np.array([7.0, -1.0, 6.0])), abs=0.05)
    wave_map([3.2, -5.0, 2.0], step=0.5).write(path)
    with mrcfile.open(path) as file:
        assert [int(file.header[f"n{axis}start"]) for axis in "xyz"] == [0, 0, 0]


@pytest.fixture(scope="module")
def written(fitted, tmp_path_factory):
    """Return a folder that holds the files of a fit, and what its summary says."""
    folder = tmp_path_factory.mktemp("viewed") / "a run"
    out = OutputFolder(folder)
    summary = out.write(*fitted, "some where/model.pdb", "C:\\maps\\map of it.mrc")
    out.discard()
    return folder, summary


def test_models_and_map_are_those_of_the_fit(fitted, written):
    (fit, result), (folder, summary) = fitted, written
    before = read_model(folder / "fitted_before.pdb")
    expected = result.prepared.input_positions(result.initial)
    np.testing.assert_allclose(before.positions, expected, atol=1e-3)
    np.testing.assert_allclose(
        read_model(folder / "fitted_reference.pdb").positions, fit.reference.positions, atol=1e-3
    )
    shown = DensityMap.from_file(folder / "fitted_map.mrc")
    near = expected[::7]
    np.testing.assert_allclose(shown.value_at(near), fit.density_map.value_at(near), atol=1e-4)
    assert shown.data.min() < summary["contour_level"] < shown.data.max()


def test_scripts_name_what_is_in_the_folder_and_where_it_moves_does_not_matter(written, tmp_path):
    folder, summary = written
    moved = tmp_path / "moved"
    shutil.copytree(folder, moved)
    texts = {name: (folder / name).read_text(encoding="utf-8") for name in ("fitted.cxc", "fitted_coot.py")}
    assert [path.name for path in write_viewer_scripts(moved, summary)] == list(texts)
    for name, text in texts.items():
        assert (moved / name).read_text(encoding="utf-8") == text
        assert str(folder.parent) not in text and "map: map of it.mrc" in text and "before: model.pdb" in text
    opened = [words[1] for words in commands_of(texts["fitted.cxc"]) if words[0] == "open"]
    assert opened == ["fitted_map.mrc", "fitted_before.pdb", "fitted.pdb", "fitted_reference.pdb"]
    assert all((folder / name).is_file() for name in opened)
    assert f" level {summary['contour_level']:.6g} " in texts["fitted.cxc"]


def test_a_version_in_somebody_elses_summary_never_becomes_code(written, tmp_path):
    folder, summary = shutil.copytree(written[0], tmp_path / "run"), written[1]
    summary = {**summary, "versions": {"openmm-density": "1\nimport os; os.system('touch here')"}}
    for path in write_viewer_scripts(folder, summary):
        assert "import os; os" not in path.read_text() and "\nimport os;" not in path.read_text()
