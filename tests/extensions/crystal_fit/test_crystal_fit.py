"""Cycles of phases and fits."""

import json
import re
from dataclasses import replace

import gemmi
import numpy as np
import pytest

from openmm_density.base.errors import InputError, SimulationError
from openmm_density.base.stopwatch import Stopwatch
from openmm_density.cli import main
from openmm_density.extensions.crystal_fit import CrystalFit, Cycle, amplitude_refinement, crystal_fit
from openmm_density.extensions.crystal_fit.cycles import Listener, run_cycle
from openmm_density.extensions.crystal_fit.result import (
    best_cycle,
    crystal_doubts,
    handedness_doubts,
    is_over,
)
from openmm_density.extensions.crystals import phased_file
from openmm_density.fitting.interrupts import Interrupted
from openmm_density.models.structures import read_model
from openmm_density.validation.correlation import MapCorrelation


def cycle(number, r_free, r_work=0.2):
    return Cycle(number, r_work, r_free, r_work, r_free, 0.35, 45.0, 0.8)


def test_it_ends_when_r_free_has_not_fallen_for_two_cycles():
    values = [0.40, 0.30, 0.31, 0.29, 0.295, 0.29]
    cycles = [cycle(number, value) for number, value in enumerate(values)]
    assert [is_over(cycles[:n]) for n in range(1, 7)] == [False, False, False, False, False, True]
    assert best_cycle(cycles).number == 3


def test_a_start_that_stays_the_best_and_a_wide_gap_are_doubts():
    better, worse = [cycle(0, 0.4), cycle(1, 0.25)], [cycle(0, 0.3), cycle(1, 0.52), cycle(2, 0.53)]
    assert best_cycle(better).number == 1 and crystal_doubts(better, better[1]) == []
    assert best_cycle(worse).number == 0
    (doubt,) = crystal_doubts(worse, worse[0])
    assert "(0.3000; 0.5200 in cycle 1): the result is the start as it was" in doubt
    # Of a folder whose first cycle was fitted when no start was ever kept.
    doubts = crystal_doubts(worse, worse[1])
    assert len(doubts) == 3 and "keep the model as it was" in doubts[0]


def test_centres_of_the_wrong_hand_are_a_doubt():
    assert handedness_doubts({"geometry_final": {"wrong_centres": []}}) == []
    (doubt,) = handedness_doubts({"geometry_final": {"wrong_centres": ["A ILE 4 CB"]}})
    assert "A ILE 4 CB" in doubt


OPTIONS = {
    "cycles": 2,
    "steps": 100,
    "threads": 1,
    "platform": "CPU",
    "report_interval": 40,
    "save_interval": 20,
}


@pytest.fixture(scope="module")
def stopped_and_resumed(folder, tmp_path_factory):
    """Return the folder of a fit that was stopped in its second cycle and then resumed, and what was there and said."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(amplitude_refinement, "MACROCYCLES", 1)
        yield _stopped_and_resumed(folder, tmp_path_factory, patch)


def _refine_in(patch, positions, b_factors):
    patch.setattr(amplitude_refinement, "POSITION_ITERATIONS", positions)
    patch.setattr(amplitude_refinement, "B_ITERATIONS", b_factors)


def _stopped_and_resumed(folder, tmp_path_factory, patch):
    # Refined so briefly in the first cycle that the second is the better one.
    _refine_in(patch, 1, 1)
    output = tmp_path_factory.mktemp("crystal") / "run"
    fit = CrystalFit(folder / "start.pdb", folder / "data.mtz", output, **OPTIONS)

    def stopped(step, *_):
        if step >= 60 and (output / "cycle_01" / "cycle.json").exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit.run(Listener(progress=stopped), command="openmm-density fit a b")
    so_far = {name: (output / name).read_bytes() for name in ("fitted.pdb", "summary.json", "crystal.mtz")}
    so_far["names"] = [path.name for path in output.iterdir()]
    assert (output / "cycle_02" / "unfinished").is_dir()
    said = []
    watch = Stopwatch()
    watch.add({"start_up": 1000.0})
    _refine_in(patch, 5, 3)
    result = CrystalFit.resumed(output).run(Listener(say=said.append), stopwatch=watch)
    return output, so_far, result, said


def test_a_fit_that_is_stopped_in_a_later_cycle_leaves_the_best_one_so_far(stopped_and_resumed):
    output, so_far, *_ = stopped_and_resumed
    assert so_far["fitted.pdb"] == (output / "cycle_01" / "fitted.pdb").read_bytes()
    summary = json.loads(so_far["summary.json"])
    assert summary["interrupted"] and len(summary["crystal"]["cycles"]) == 2
    assert summary["doubts"][0].startswith("the fit was interrupted in cycle 2: the result so far is")
    assert summary["crystal"]["best_cycle"] == 1 and so_far["crystal.mtz"]
    assert "overview.png" not in so_far["names"] and (output / "overview.png").exists()


def test_it_lowers_r_free_also_after_it_was_stopped(stopped_and_resumed, folder):
    output, _, result, said = stopped_and_resumed
    start, _, end = result.cycles
    assert end.r_free < start.r_free - 0.1 and end.r_work < start.r_work - 0.1
    assert [line[:15] for line in said if "R-work" in line] == [
        "start: R-work 0",
        "cycle 1: R-work",
        "cycle 2: R-work",
    ]
    summary = json.loads((output / "summary.json").read_text())
    assert summary["crystal"]["best_cycle"] == 2 and summary["crystal"]["r_free"] == end.r_free
    assert summary["command"] == "openmm-density fit a b" and not summary["interrupted"]
    # Of a crystal it is the free reflections that tell.
    assert not any("half maps" in note for note in summary["notes"])
    assert not any(each["kind"] == "not_improved" for each in summary["located_doubts"])
    assert any("refined against the amplitudes" in note for note in summary["notes"])
    assert summary["kept"] == "after" and summary["b_factors"]["level"] == "atom"
    assert any("R-free still fell in cycle 2" in note for note in summary["notes"])
    data, table = summary["crystal"]["data"]["whole"], (output / "table1.md").read_text()
    assert data["r_free"] == pytest.approx(end.r_free) and data["completeness"] == 1.0
    assert f"| R_work / R_free | {end.r_work:.4f} / {end.r_free:.4f} |" in table
    assert "| Space group | P 21 21 21 |" in table and "| Reflections, work / free |" in table
    block = gemmi.cif.read(str(output / "fitted.cif")).sole_block()
    assert block.find_value("_refine.ls_R_factor_R_free") == f"{end.r_free:.4f}"
    assert block.find_value("_symmetry.space_group_name_H-M").strip("'") == "P 21 21 21"
    assert float(block.find_value("_cell.length_a")) == pytest.approx(
        result.phased.reflections.cell.a, abs=0.01
    )
    assert len((output / "cycles.csv").read_text().splitlines()) == 4
    with pytest.raises(InputError, match="complete one cannot be resumed"):
        CrystalFit.resumed(output)
    with pytest.raises(InputError, match="other settings"):
        CrystalFit(folder / "start.pdb", folder / "data.mtz", output, **{**OPTIONS, "cycles": 3}).run()


def test_summary_and_report_are_of_the_whole_run(stopped_and_resumed, folder):
    output, _, result, _ = stopped_and_resumed
    summary, given = result.summary, folder / "start.pdb"
    assert summary["model"] == str(given) and "| the file start.pdb |" in (output / "table1.md").read_text()
    fits = [json.loads((output / f"cycle_0{number}" / "summary.json").read_text()) for number in (1, 2)]
    # Both in the map of the result's own phases, so that they can be compared.
    density_map, resolution = result.phased.density_map(), result.phased.reflections.resolution
    for path, stage in ((given, "initial"), (output / "fitted.pdb", "final")):
        model = read_model(path)
        cc = MapCorrelation(density_map, model.topology, resolution).cc_mask(model.positions)
        assert summary[f"cc_{stage}"] == pytest.approx(cc, abs=1e-6)
    assert summary["cc_initial"] < fits[1]["cc_initial"] - 0.05
    assert summary["geometry_initial"] == fits[0]["geometry_initial"]
    assert summary["geometry_final"] == fits[1]["geometry_final"]
    assert np.allclose(atoms_of(output / "fitted_before.pdb")[:, :3], atoms_of(given)[:, :3], atol=2e-3)
    assert "REMARK 3" in fits[0]["left_out"][0] and summary["left_out"] == fits[0]["left_out"]
    assert fits[0]["left_out"][0] in summary["notes"]
    seconds = [fit["wall_seconds"] for fit in fits]
    assert summary["wall_seconds"] > 1000 + sum(seconds) and summary["steps"] == 200
    assert sum(summary["seconds_by_part"].values()) == pytest.approx(summary["wall_seconds"], abs=0.01)
    start, _, end = result.cycles
    page = (output / "report.html").read_text()
    assert (
        f"Fitted in 2 cycles, of which cycle 2 is the result: R-work from {start.r_work:.4f} to {end.r_work:.4f}"
        in page
    )


def test_score_says_the_same_of_the_result_as_the_fit(stopped_and_resumed, folder, tmp_path, capsys):
    output, _, result, _ = stopped_and_resumed
    table = tmp_path / "table1.md"
    words = [str(output / "fitted.pdb"), str(folder / "data.mtz"), "--table1", str(table), "--json"]
    assert main(["score", *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cc_map"] == pytest.approx(result.summary["cc_final"], abs=1e-6)
    mine, theirs = ((path / "table1.md").read_text() for path in (output, tmp_path))
    assert "with the phases of this model itself" in mine
    assert mine.replace("start.pdb", "fitted.pdb") == theirs
    # With the hydrogens that were built R is another, which is told.
    assert main(["score", str(output / "fitted.cif"), str(folder / "data.mtz")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    without, free, error = re.search(
        r"of the file; without them R-work (\S+), R-free (\S+) ± (0\.\d+)", said
    ).groups()
    n_free = result.phased.r_factors.n_free
    assert float(error) == pytest.approx(float(free) / n_free**0.5, abs=5e-4)
    assert abs(float(without) - float(re.search(r"R-work (\S+),", said)[1])) > 0.002
    structure = gemmi.read_structure(str(output / "fitted.cif"))
    structure.remove_hydrogens()
    structure.make_mmcif_document().write_file(str(tmp_path / "others.cif"))
    assert main(["score", str(tmp_path / "others.cif"), str(folder / "data.mtz"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert f"{found['r_work']:.4f}" == without and "n_hydrogens" not in found
    refined = gemmi.cif.read(str(output / "fitted.cif")).sole_block().get_mmcif_category("_refine.")
    assert refined["details"][0].startswith("ATOMS THAT THE INPUT MODEL DID NOT HAVE")
    # Of the input's atoms: those that were built are in summary.json's figures alone.
    written = [each.atom.b_iso for each in gemmi.read_structure(str(output / "fitted.pdb"))[0].all()]
    for name, value in (("mean", np.mean(written)), ("min", min(written)), ("max", max(written))):
        assert float(refined[f"B_iso_{name}"][0]) == pytest.approx(value, abs=0.01)


def test_a_fit_that_is_stopped_in_its_first_cycle_leaves_no_result(folder, tmp_path, monkeypatch, capsys):
    def stopped(*_):
        raise Interrupted

    monkeypatch.setattr(crystal_fit, "run_cycle", stopped)
    with pytest.raises(KeyboardInterrupt):
        CrystalFit(folder / "start.pdb", folder / "data.mtz", tmp_path / "run", **OPTIONS).run()
    assert not (tmp_path / "run" / "summary.json").exists()
    assert CrystalFit.resumed(tmp_path / "run").settings.cycles == 2
    assert main(["fit", "--resume", str(tmp_path / "run")]) == 130
    assert (
        "before its first cycle came to an end, so that there is no result yet; " in capsys.readouterr().err
    )


def test_a_model_elsewhere_in_the_cell_is_doubted_before_the_first_cycle(folder, tmp_path, monkeypatch):
    def stopped(*_):
        raise Interrupted

    monkeypatch.setattr(crystal_fit, "run_cycle", stopped)
    structure = gemmi.read_structure(str(folder / "true.pdb"))
    for cra in structure[0].all():
        cra.atom.pos += gemmi.Position(5.0, 7.0, 9.0)
    structure.write_pdb(str(tmp_path / "elsewhere.pdb"))
    for model, n_doubts in ((folder / "true.pdb", 0), (tmp_path / "elsewhere.pdb", 1)):
        said = []
        with pytest.raises(KeyboardInterrupt):
            CrystalFit(model, folder / "data.mtz", tmp_path / model.stem, **OPTIONS).run(
                Listener(say=said.append)
            )
        assert sum("the model may lie elsewhere in the cell" in line for line in said) == n_doubts


def atoms_of(path):
    structure = gemmi.read_structure(str(path))  # its atoms end with it
    return np.array([[*cra.atom.pos.tolist(), cra.atom.b_iso] for cra in structure[0].all()])


def test_a_start_that_no_cycle_betters_is_the_result_and_an_unstable_cycle_the_last(
    folder, tmp_path, monkeypatch
):
    output = tmp_path / "run"
    options = {**OPTIONS, "steps": 40, "cycles": 3}

    def unstable_in(which):
        def carried_out(settings, path, number, *more):
            if number == which:
                raise SimulationError("the simulation became unstable 4 times")
            return run_cycle(settings, path, number, *more)

        monkeypatch.setattr(crystal_fit, "run_cycle", carried_out)

    unstable_in(1)
    with pytest.raises(SimulationError, match="unstable 4 times"):
        CrystalFit(folder / "true.pdb", folder / "data.mtz", output, **options).run()
    unstable_in(2)
    result = CrystalFit(folder / "true.pdb", folder / "data.mtz", output, **options).run()
    start, end = result.cycles
    assert end.r_free > start.r_free and result.best is start
    assert np.allclose(atoms_of(output / "fitted.pdb"), atoms_of(folder / "true.pdb"), atol=2e-3)
    after = atoms_of(output / "after.pdb")
    assert np.abs(after - atoms_of(folder / "true.pdb"))[:, 3].mean() > 0.1
    found = phased_file(output / "after.pdb", result.phased.reflections).r_factors
    assert found.r_free == pytest.approx(end.r_free)
    assert result.phased.r_factors.r_free == pytest.approx(start.r_free, abs=1e-4)
    summary = result.summary
    assert summary["kept"] == "before" and summary["crystal"]["best_cycle"] == 0
    of_cycle = json.loads((output / "cycle_01" / "summary.json").read_text())
    assert summary["crystal"]["r_free"] == start.r_free and end.cc_map == of_cycle["simulated"]["cc"]
    # In the map of the phases of the start, which is the result.
    assert summary["simulated"]["cc"] != summary["cc_initial"] == summary["cc_final"]
    assert (
        f"({start.r_free:.4f}; {end.r_free:.4f} in cycle 1): the result is the start" in summary["doubts"][1]
    )
    assert "cycle 2 did not finish" in summary["doubts"][0] and "unstable 4 times" in summary["doubts"][0]
    assert not any("did not improve" in doubt for doubt in summary["doubts"])
    assert "the start, kept" in (output / "report.html").read_text()


def test_what_cannot_be_used_is_refused_in_a_sentence(folder, tmp_path, capsys):
    files = [str(folder / "start.pdb"), str(folder / "no_flags.mtz")]
    for words, said in (
        ([], "no free flags"),
        (["--make-free-flags", "--resolution", "1.5"], "--resolution must be no finer than that of the data"),
        (["--make-free-flags", "--mirror"], "--mirror does not go with measured amplitudes"),
        (["--make-free-flags", "--symmetry", "C2"], "--symmetry does not go with measured amplitudes"),
        (["--make-free-flags", "--solvent", "water"], "--solvent of a crystal"),
        (["--amplitudes", "FP,FP"], "--amplitudes must be amplitudes"),
        (["--make-free-flags", "--cycles", "0"], "--cycles must be a whole number"),
    ):
        assert main(["fit", *files, "--output", str(tmp_path / "run"), *words]) == 2
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_flags_that_are_there_are_not_made(folder, tmp_path, capsys):
    files = [str(folder / "start.pdb"), str(folder / "data.mtz"), "--output", str(tmp_path / "run")]
    for words, said in (
        (["--make-free-flags"], "--make-free-flags is given, but the file already has free flags: FREE = 0"),
        (["--free-value", "40"], "hold out 0% of the reflections if 40 means free"),
    ):
        assert main(["fit", *files, *words]) == 2
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1
    # Flags that hold out none are no flags.
    alike = tmp_path / "alike.mtz"
    mtz = gemmi.read_mtz_file(files[1])
    values = np.array(mtz)
    values[:, mtz.column_labels().index("FREE")] = 1
    mtz.set_data(values)
    mtz.write_to_file(str(alike))
    with pytest.raises(InputError, match="are the same"):
        CrystalFit(files[0], alike, tmp_path / "run")
    made = CrystalFit(files[0], alike, tmp_path / "run", make_free_flags=True).reflections
    assert 0 < made.free.sum() < 0.1 * len(made) and "FREE is the same for all" in made.notes[0]
    numbered = CrystalFit(files[0], files[1], tmp_path / "run", free_value=3).reflections
    assert (
        numbered.free.any() and not (numbered.free & CrystalFit(*files[:2], tmp_path).reflections.free).any()
    )


def test_free_flags_alone_are_neither_map_nor_data(folder, tmp_path, capsys):
    path = tmp_path / "flags.mtz"
    mtz = gemmi.read_mtz_file(str(folder / "data.mtz"))
    for label in ("FP", "SIGFP"):
        mtz.remove_column(mtz.column_labels().index(label))
    mtz.write_to_file(str(path))
    words = [
        "fit",
        str(folder / "start.pdb"),
        str(path),
        "--resolution",
        "3",
        "--output",
        str(tmp_path / "run"),
    ]
    assert main(words) == 2
    error = capsys.readouterr().err
    assert (
        "no map coefficients (amplitudes and phases) nor measured amplitudes" in error and "FREE (I)" in error
    )


def test_a_map_and_a_file_that_is_not_there_are_told_from_amplitudes(folder, tmp_path, capsys):
    model, a_map, missing = folder / "start.pdb", tmp_path / "map.mrc", tmp_path / "none.mtz"
    empty, broken = tmp_path / "empty.pdb", tmp_path / "broken.mtz"
    for path in (a_map, empty):
        path.write_bytes(b"")
    broken.write_bytes((folder / "data.mtz").read_bytes()[:5000])
    of_amplitudes = "is for the measured amplitudes of an MTZ file, and map.mrc is"
    for command, data, words, said in (
        ("fit", a_map, ["--amplitudes", "F,SIGF"], f"--amplitudes {of_amplitudes}"),
        ("fit", a_map, ["--make-free-flags"], f"--make-free-flags {of_amplitudes}"),
        ("fit", a_map, ["--free-flags", "FREE"], f"--free-flags {of_amplitudes}"),
        ("fit", a_map, ["--cycles", "3", "--resolution", "2"], f"--cycles {of_amplitudes} taken for a map"),
        ("fit", missing, [], "there is no such file: give the path of a map or an MTZ file"),
        ("score", a_map, ["--amplitudes", "F,SIGF"], f"--amplitudes {of_amplitudes}"),
        ("score", missing, [], "there is no such file"),
        ("fit", broken, [], "broken.mtz: it cannot be read as an MTZ file"),
        ("score", broken, [], "broken.mtz: it cannot be read as an MTZ file"),
        ("fit", folder / "data.mtz", ["--overwrite"], "empty.pdb: no atoms were found"),
        ("score", folder / "data.mtz", [], "empty.pdb: no atoms were found"),
    ):
        output = ["--output", str(tmp_path / "run")] if command == "fit" else []
        given = empty if data == folder / "data.mtz" else model
        assert main([command, str(given), str(data), *output, *words]) == 2
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_flags_that_are_made_are_kept_for_all_cycles(folder, tmp_path):
    fit = CrystalFit(
        folder / "start.pdb", folder / "no_flags.mtz", tmp_path / "run", make_free_flags=True, seed=4
    )
    assert np.array_equal(fit.reflections.free, replace(fit.settings).reflections().free)
    assert fit.reflections.free.mean() == pytest.approx(0.05, abs=0.01)


def test_data_without_a_free_reflection_up_to_the_resolution_are_refused(folder, tmp_path):
    mtz = gemmi.read_mtz_file(str(folder / "data.mtz"))
    values = np.array(mtz)
    values[:, mtz.column_labels().index("FREE")] = np.where(mtz.make_d_array() < 2.5, 0, 1)
    mtz.set_data(values)
    mtz.write_to_file(str(tmp_path / "data.mtz"))
    arguments = folder / "start.pdb", tmp_path / "data.mtz", tmp_path / "run"
    assert CrystalFit(*arguments).reflections.free.any()
    with pytest.raises(InputError, match=r"none of its \d+ reflections up to 2.8\d Å is held out"):
        CrystalFit(*arguments, resolution=2.8)


def test_score_prints_r_factors(folder, capsys):
    assert main(["score", str(folder / "start.pdb"), str(folder / "data.mtz"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert 0.1 < found["r_work"] < 0.6 and found["n_free"] > 20 and found["shells"]
    assert main(["score", str(folder / "start.pdb"), str(folder / "no_flags.mtz")]) == 0
    assert "No free flags" in capsys.readouterr().out
    table = folder / "table1.md"
    words = ["score", str(folder / "start.pdb"), str(folder / "data.mtz"), "--table1", str(table)]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["data"]["whole"]["r_work"] == pytest.approx(found["r_work"])
    assert f"| {found['r_work']:.4f} / {found['r_free']:.4f} |" in table.read_text()
    assert main(words) == 2 and "--overwrite" in capsys.readouterr().err
    assert main(["score", str(folder / "start.pdb"), str(folder / "data.mtz"), "--q-score"]) == 2
    assert "--q-score needs a map" in capsys.readouterr().err
    assert main(["score", str(folder / "start.pdb"), str(folder / "data.mtz"), "--symmetry", "C2"]) == 2
    assert "--symmetry needs a map" in capsys.readouterr().err
