"""Which fits a batch is made of."""

from dataclasses import replace

import numpy as np
import pytest

from openmm_density import DensityMap
from openmm_density.base.errors import InputError
from openmm_density.extensions.batch import Batch, jobs_of, read_jobs
from openmm_density.extensions.batch.held_out import _map_options


@pytest.fixture
def files(tmp_path):
    for name in ("x/one.pdb", "y/one.pdb", "two.cif.gz", "map.mrc", "other.ccp4.gz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    return tmp_path


def test_every_model_goes_into_every_map_with_every_seed(files):
    maps = [files / "map.mrc", files / "other.ccp4.gz"]
    jobs = jobs_of(
        [files / "x/one.pdb", files / "two.cif.gz"], maps, 5, files / "out", range(3), steps=40, mirror=True
    )
    assert len({job.folder for job in jobs}) == 12
    assert jobs[0].name == "one_in_map_seed0" and jobs[-1].name == "two_in_other_seed2"
    assert jobs[-1].folder == str(files / "out" / "two_in_other_seed2")
    words = [str(files / "two.cif.gz"), str(files / "other.ccp4.gz"), "--resolution", "5", "--seed", "2"]
    assert jobs[-1].words == [*words, "--steps", "40", "--mirror"]


def test_names_have_what_differs_alone(files):
    assert [job.name for job in jobs_of([files / "two.cif.gz"], [files / "map.mrc"], 5, files)] == ["two"]
    same = [files / "x/one.pdb", files / "y/one.pdb"]
    assert [job.name for job in jobs_of(same, [files / "map.mrc"], 5, files)] == ["x_one", "y_one"]


@pytest.mark.parametrize(
    ("models", "maps", "message"),
    [
        ([], ["map.mrc"], "models must name at least one: give one"),
        (["two.cif.gz"], ["map.mrc", "map.mrc"], "maps holds .*map.mrc twice: give each once"),
        (["none.pdb"], ["map.mrc"], "none.pdb: there is no such file: check its path"),
    ],
)
def test_what_is_no_batch_is_refused(files, models, maps, message):
    with pytest.raises(InputError, match=message):
        jobs_of([files / name for name in models], [files / name for name in maps], 5, files / "out")


def test_a_table_says_all_of_each_fit(files):
    (files / "jobs.csv").write_text(
        "model, map, resolution, seed, name, strength, half-map, invert, restrain, predicted\n"
        "x/one.pdb,map.mrc,4.5,3,first,30,map.mrc;other.ccp4.gz,yes,,\n"
        "two.cif.gz,map.mrc,,,,,,no,none,yes\n"
    )
    first, second = read_jobs(files / "jobs.csv", files / "out", 6.0, ["--steps", "100"])
    assert (first.name, first.resolution, first.seed) == ("first", 4.5, 3)
    halves = ["--half-map", str(files / "map.mrc"), "--half-map", str(files / "other.ccp4.gz")]
    assert list(first.arguments) == ["--steps", "100", "--strength", "30", *halves, "--invert"]
    assert (second.name, second.resolution, second.seed) == ("002_two", 6.0, 0)
    assert list(second.arguments) == ["--steps", "100", "--restrain", "none", "--predicted", "yes"]
    assert second.model == str(files / "two.cif.gz") and second.folder == str(files / "out" / "002_two")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model,resolution\nx/one.pdb,5\n", "jobs.csv: it has no column map, found model, resolution: add"),
        ("", "jobs.csv: it has no column model and none map, found an empty table: "),
        ("model,map\nx/one.pdb,map.mrc\n", "row 1: there is no resolution: add a column resolution"),
        (
            "model,map,resolution\nx/one.pdb,map.mrc,fine\n",
            'row 1: resolution must be a number, found "fine"',
        ),
        ("model,map,resolution\n,map.mrc,5\n", "row 1: its model is empty: give a file"),
        (
            "model,map,resolution\nx/one.pdb,5\n",
            "a line has not as many cells as there are columns, found line 2",
        ),
        ("model,map,resolution\nx/one.pdb,no.mrc,5\n", "no.mrc: there is no such file: check its path"),
        (
            "model,map,resolution,folder\nx/one.pdb,map.mrc,5,f\ny/one.pdb,map.mrc,5,f\n",
            "two jobs have the folder .*/out/f, found .*x/one.pdb and .*y/one.pdb: give each one of its own",
        ),
        (
            "model,map,resolution,name\nx/one.pdb,map.mrc,5,n\ny/one.pdb,map.mrc,5,n\n",
            "two jobs have the name n, found",
        ),
    ],
)
def test_a_table_that_is_none_is_refused(files, text, message):
    (files / "jobs.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        read_jobs(files / "jobs.csv", files / "out")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--columns", "F,PHI"], (("F", "PHI"), False)),
        (["--columns=F,PHI", "--threads", "1", "--invert"], (("F", "PHI"), True)),
        (["--threads", "1"], ((), False)),
    ],
)
def test_what_a_job_does_to_its_map_is_done_to_its_free_map(fragment, tmp_path, words, found):
    (job,) = jobs_of([fragment / "a.pdb"], [fragment / "map.mrc"], 5.0, tmp_path / "out")
    assert _map_options(replace(job, arguments=tuple(words))) == found


def test_free_maps_are_compared_with_their_maps_before_any_fit(fragment, tmp_path):
    fitted = DensityMap.from_file(fragment / "map.mrc")
    noise = np.random.default_rng(1).normal(0.0, 0.3 * fitted.data.std(), fitted.shape)
    free = replace(fitted, data=(fitted.data + noise).astype(np.float32))
    free.write(tmp_path / "free.mrc")
    free.inverted().write(tmp_path / "inverted.mrc")
    fitted.inverted().write(tmp_path / "fitted_inverted.mrc")
    replace(free, origin=free.origin + np.array([2.0, 1.0, 0.0])).write(tmp_path / "beside.mrc")

    def batch(density_map, name, **options):
        model, free = [fragment / "a.pdb"], tmp_path / name
        return Batch(jobs_of(model, [density_map], 5.0, tmp_path / "out", free_map=free, **options))

    assert batch(fragment / "map.mrc", "free.mrc").notes == []
    assert batch(tmp_path / "fitted_inverted.mrc", "inverted.mrc", invert=True).notes == []
    (doubt,) = batch(fragment / "map.mrc", "beside.mrc").notes
    assert doubt.startswith(f"{tmp_path / 'beside.mrc'}: The free map agrees poorly with the map")
    with pytest.raises(InputError, match=r"inverted\.mrc: the contrast of the free map is inverted"):
        batch(fragment / "map.mrc", "inverted.mrc")
    (tmp_path / "same.mrc").write_bytes((fragment / "map.mrc").read_bytes())
    with pytest.raises(InputError, match=r"same\.mrc: the free map is the very map that is fitted into"):
        batch(fragment / "map.mrc", "same.mrc")
    assert not (tmp_path / "out").exists()
