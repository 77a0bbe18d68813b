"""A series from end to end: what it leaves, that it goes on where it was interrupted, and what it refuses."""

import csv
import json
import shutil
from dataclasses import replace

import mdtraj
import numpy as np
import pytest

from openmm_density import DensityMap
from openmm_density.base.errors import InputError
from openmm_density.extensions.series import frame_fit
from openmm_density.extensions.series.output import SERIES_FILES
from openmm_density.extensions.series.result import rmsd
from openmm_density.fitting.locks import FolderLock
from openmm_density.models import read_model
from openmm_density.validation.correlation import cc_mask

from ...cli.commands import run
from .conftest import DEGREES, DISTANCE, bent, series_in

FOLDERS = [
    "frame_01_from_02",
    "frame_02_from_01",
    "frame_02_from_03",
    "frame_02_from_model",
    "frame_03_from_02",
]


def test_each_volume_is_fitted_from_its_neighbours(finished):
    series, result, lines = finished
    assert sorted(path.name for path in series.folder.glob("frame_*")) == FOLDERS
    assert [len(frame.fits) for frame in result.frames] == [1, 3, 1]
    for folder in FOLDERS:
        assert (series.folder / folder / "fitted.pdb").exists() and (
            series.folder / folder / "report.html"
        ).exists()
    said = [line for line, stays in lines if stays]
    assert said[0].startswith("volume 2 of 3: fitted, CC ") and said[1].startswith(
        "volume 3 of 3 from 2: fitted, CC "
    )
    assert len(said) == 5


def test_the_models_follow_the_truth(finished, volumes):
    _, result, _ = finished
    model = read_model(volumes / "model.pdb")
    alpha = [atom.index for atom in model.topology.atoms() if atom.name == "CA"]
    for positions, degrees in zip(result.positions[:, result.trace.atoms], DEGREES):
        assert rmsd(positions, bent(model, degrees)[alpha], superposed=False) < 0.5
    assert result.path.jumps == [] and all(frame.kept.cc > 0.9 for frame in result.frames)


def test_all_fits_are_of_the_atoms_of_the_users_model_with_all_conformers(finished, volumes):
    series, result, _ = finished
    given = read_model(volumes / "model.pdb")
    assert len(given.alternates) == 2 and not any(record.element == "H" for record in given.records)
    for frame in result.frames:
        for fit in frame.fits:
            kept, completed = read_model(fit.next_start), read_model(fit.model)
            assert [record.name for record in kept.records] == [record.name for record in given.records]
            assert [record.altloc for record in kept.alternates.records] == ["B", "B"]
            assert len(completed.positions) > len(kept.positions) and not len(completed.alternates)
            # The figures of all are of the same atoms: those of a fit's file by itself.
            density_map = DensityMap.from_file(series.settings.maps[frame.number - 1])
            assert fit.cc == pytest.approx(cc_mask(density_map, kept.topology, kept.positions, 5.0), abs=2e-4)
            if fit.step.source is not None:
                neighbour = json.loads((fit.folder / "summary.json").read_text())["model"]
                assert neighbour.endswith("fitted.pdb")
    assert {frame.kept.summary["n_alternate_atoms"] for frame in result.frames} == {2}


def test_of_several_fits_the_better_one_stays(finished):
    frame = finished[1].frames[1]
    assert frame.kept.cc >= max(fit.cc for fit in frame.fits) - 0.002
    assert frame.passes_differ < 0.5 and frame.other.step.source != frame.kept.step.source


def test_it_leaves_a_trajectory_tables_and_a_page(finished):
    series, result, _ = finished
    assert {path.name for path in series.folder.iterdir() if path.name.startswith("series.")} == set(
        SERIES_FILES
    )
    for topology in ("series.pdb", "series.cif"):
        trajectory = mdtraj.load(str(series.folder / "series.dcd"), top=str(series.folder / topology))
        assert 10 * trajectory.xyz == pytest.approx(result.positions, abs=2e-3)
    rows = list(csv.DictReader((series.folder / "series.csv").read_text().splitlines()))
    assert [row["map"] for row in rows] == ["vol_1.mrc", "vol_2.mrc", "vol_3.mrc"]
    assert [float(row["cc"]) for row in rows] == pytest.approx(
        [each.kept.cc for each in result.frames], abs=1e-5
    )
    summary = json.loads((series.folder / "series.json").read_text())
    assert summary["start"]["frame"] == 2 and len(summary["start"]["correlations"]) == 3
    assert summary["coordinates"][0]["values"] == pytest.approx(
        DISTANCE.values(result.model.topology, result.positions), abs=1e-3
    )
    assert sum(fit["kept"] for fit in summary["fits"]) == 3 and summary["notes"] == []
    page = (series.folder / "series.html").read_text()
    assert "Film of the series" in page and "vol_3.mrc" in page


def test_an_interrupted_series_goes_on_and_ends_with_the_same_bits(finished, volumes, tmp_path, monkeypatch):
    series, result, _ = finished
    shutil.copytree(series.folder, tmp_path / "out")
    shutil.rmtree(tmp_path / "out" / "frame_01_from_02")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("frame_*/summary.json")}

    def interrupt(line, _):
        if line.startswith("volume 1 of 3 from 2") and "step 40/40" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        series_in(volumes, tmp_path / "out").run(interrupt)
    unfinished = tmp_path / "out" / "frame_01_from_02" / "unfinished"
    assert (unfinished / "state.npz").exists() and not (unfinished.parent / "summary.json").exists()
    resumed = []
    again = series_in(volumes, tmp_path / "out").run(lambda line, _: resumed.append(line))
    assert not any("step 20/40" in line for line in resumed)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert np.array_equal(again.positions, result.positions)


def test_a_fit_that_a_killed_series_is_still_saving_is_waited_for(finished):
    series, result, _ = finished
    step = result.frames[0].kept.step
    folder = series.folder / step.folder
    (folder / "unfinished").mkdir()
    held, told = FolderLock(folder), []

    def tell(step, done, total, doing, row):
        told.append(doing)
        (folder / "unfinished").rmdir()  # it has come to its end
        held.release()

    fits = frame_fit.FrameFits(series.settings, result.start, series.folder, 1, tell)
    assert fits._carried_out(step, series.settings.model, None).cc == result.frames[0].kept.cc
    assert told[0].startswith("waiting for the end of its earlier fit (process ")


def test_another_series_in_its_folder_is_not_mixed_with_it(finished, volumes):
    with pytest.raises(
        InputError, match=r"it holds a series with other settings \(start_at\): choose another folder"
    ):
        series_in(volumes, finished[0].folder, start_at=1).run()


def test_without_a_start_the_volume_that_the_model_fits_best_is_first(volumes, tmp_path):
    series = series_in(volumes, tmp_path, start_at=None)
    start, facts = series._start(series_lines())
    assert start.frame == 1 and len(facts) == 3
    assert start.correlations[0] > start.correlations[1] > start.correlations[2]
    assert series._start(series_lines())[0] == start  # as it is recorded


def series_lines():
    from openmm_density.extensions.series.series import ProgressLines

    return ProgressLines(None, 3)


def test_a_volume_of_inverted_contrast_is_named(volumes, tmp_path):
    for number in (1, 2, 3):
        shutil.copy(volumes / f"vol_{number}.mrc", tmp_path)
    shutil.copy(volumes / "model.pdb", tmp_path)
    inverted = DensityMap.from_file(tmp_path / "vol_3.mrc")
    replace(inverted, data=-inverted.data).write(tmp_path / "vol_3.mrc")
    with pytest.raises(
        InputError, match=r"vol_3\.mrc: its contrast is inverted beside that of the other volumes"
    ):
        series_in(tmp_path, tmp_path / "out", start_at=None).run()


@pytest.mark.parametrize(
    "options, said",
    [
        ({"solvent": "water"}, "solvent of a series must be none, obc or gbn2"),
        ({"workers": 3}, "workers must be 1, or 2 for the two directions"),
        ({"free_maps": ["model.pdb"]}, "free_maps must be as many as the 3 volumes"),
    ],
)
def test_what_cannot_be_is_refused_at_once(volumes, tmp_path, options, said):
    with pytest.raises(InputError, match=said):
        series_in(volumes, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_a_first_volume_that_is_none_is_refused(volumes, tmp_path):
    with pytest.raises(InputError, match="start_at must be the number of a volume, from 1 to 3, found 4"):
        series_in(volumes, tmp_path / "out", start_at=4).run()


def test_free_maps_judge(finished, volumes):
    series, result, _ = finished
    settings = replace(series.settings, free_maps=tuple(reversed(series.settings.maps)))
    fit = frame_fit.finished_fit(settings, series.folder, result.frames[0].kept.step)
    assert fit.score == fit.cc_free < fit.cc


def test_the_command_prints_a_row_for_each_volume_and_what_moves(finished, volumes, monkeypatch, capsys):
    series, result, _ = finished
    monkeypatch.setattr("openmm_density.extensions.series.command._series", lambda _: series)
    arguments = [volumes / "model.pdb", *series.settings.maps, "--resolution", 5, "--output", series.folder]
    assert run("series", *arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["volume", "from", "CC", "step", "(Å)", "passes", "differ", "(Å)"]
    assert [line.split()[:2] for line in lines[1:4]] == [
        ["1", "vol_1.mrc"],
        ["2", "vol_2.mrc"],
        ["3", "vol_3.mrc"],
    ]
    assert f"{result.path.steps[1]:.2f}" in lines[3] and "open series.html in a browser" in lines[-1]


def test_a_dry_run_says_what_would_be_fitted_from_what(volumes, tmp_path, monkeypatch, capsys):
    series = series_in(volumes, tmp_path / "out")
    monkeypatch.setattr("openmm_density.extensions.series.command._series", lambda _: series)
    arguments = [
        volumes / "model.pdb",
        *series.settings.maps,
        "--resolution",
        5,
        "--output",
        tmp_path / "out",
    ]
    assert run("series", *arguments, "--dry-run") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "volume 2 would be fitted first, then 3 from 2, 2 from 3, 1 from 2, 2 from 1"
    assert len(lines) == 5 and not (tmp_path / "out").exists()
