"""The benchmark of strengths: its maps have the resolution they claim, its starts are sound, and its figures are right."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from openmm_density.errors import InputError
from openmm_density.models import read_model
from openmm_density.validation.fsc import half_map_fsc
from openmm_density.validation.geometry import compare_geometry, geometry_report

from .conftest import PROJECT
from .small_models import FRAGMENT, fragment_lines, written


@pytest.fixture
def module(monkeypatch):
    monkeypatch.syspath_prepend(str(PROJECT / "examples" / "benchmarks"))
    return importlib.import_module


@pytest.fixture
def fragment(small_data, tmp_path):
    return read_model(written(tmp_path / "fragment.pdb", fragment_lines(small_data, 1, 24)))


@pytest.mark.parametrize("resolution", [4.0, 8.0])
def test_half_maps_correlate_up_to_the_stated_resolution(module, fragment, resolution):
    noisy = module("noisy_maps")
    relative = noisy.relative_b_factors(fragment.topology, fragment.positions)
    maps = noisy.noisy_maps(fragment.topology, fragment.positions, resolution, relative, seed=3)
    curve = half_map_fsc(*maps.unfiltered, fragment.positions)
    crossing = curve.crossing(0.143, dips=False)
    assert crossing.falls and crossing.resolution == pytest.approx(resolution, rel=0.02)
    assert curve.correlation[0] > 0.9
    # The fit's map is the mean of two halves; the noise of the third is no part of it.
    np.testing.assert_allclose(maps.full.data, (maps.halves[0].data + maps.halves[1].data) / 2, atol=1e-5)
    noise = [(each.data - maps.noiseless.data).ravel() for each in (maps.full, *maps.halves)]
    correlations = np.corrcoef(noise)[0, 1:]
    assert correlations[:2] == pytest.approx(np.sqrt(0.5), abs=0.1) and abs(correlations[2]) < 0.2
    assert noise[0].std() == pytest.approx(noise[3].std() / np.sqrt(2), rel=0.1)


def test_solvent_is_zero_and_lowers_the_contrast(module, fragment):
    noisy = module("noisy_maps")
    relative = noisy.relative_b_factors(fragment.topology, fragment.positions)
    maps = noisy.noisy_maps(fragment.topology, fragment.positions, 6.0, relative)
    b_factors = noisy.b_factors_at(6.0, relative)
    alone = type(maps.full).simulate(
        fragment.topology, fragment.positions, 6.0, like=maps.full, b_factors=b_factors
    )
    inside = maps.full.mask_around(fragment.positions, 2.0)
    far = ~maps.full.mask_around(fragment.positions, 9.0)
    assert abs(maps.noiseless.data[far]).max() < 0.05 * maps.noiseless.data.max()
    assert 0.4 < maps.noiseless.data[inside].mean() / alone.data[inside].mean() < 0.8
    around = maps.full.mask_around(fragment.positions, 5.0) & ~maps.full.mask_around(fragment.positions, 4.0)
    assert maps.noiseless.data[around].mean() < alone.data[around].mean()


def test_b_factors_rise_towards_ends_of_side_chains(module, small_data):
    noisy = module("noisy_maps")
    model = read_model(small_data / FRAGMENT)
    relative = noisy.relative_b_factors(model.topology, model.positions)
    assert relative.mean() == pytest.approx(1) and relative.min() > 0.05 and relative.max() < 6
    named = {(atom.residue.index, atom.name): value for atom, value in zip(model.topology.atoms(), relative)}
    ends = [
        (named[i, "CA"], value) for (i, name), value in named.items() if name in ("NZ", "CZ", "OE1", "SD")
    ]
    assert len(ends) > 10 and np.mean([end > alpha for alpha, end in ends]) > 0.9
    trace = np.array([value for (_, name), value in named.items() if name == "CA"])
    assert trace.std() > 0.2 and np.corrcoef(trace[:-1], trace[1:])[0, 1] > 0.5


def test_modes_are_those_of_the_springs(module, fragment):
    truth = module("known_truth")
    positions = fragment.positions[truth.alpha_carbons(fragment)]
    values, modes = truth.low_modes(positions, 5)

    def energy(moved: np.ndarray) -> float:
        at_rest, now = (np.linalg.norm(p[:, None] - p[None], axis=-1) for p in (positions, moved))
        return 0.25 * ((now - at_rest) ** 2 * (at_rest < truth.MODE_CUTOFF)).sum()

    step = 1e-3
    for value, mode in zip(values, modes):
        assert np.linalg.norm(mode) == pytest.approx(1)
        curvature = (energy(positions + step * mode) + energy(positions - step * mode)) / step**2
        assert curvature == pytest.approx(value, rel=1e-3) and value > 1e-6
    turned = Rotation.from_rotvec([1e-3, 0, 0]).apply(positions) - positions
    assert np.abs(np.einsum("mij,ij->m", modes, turned)).max() < 1e-5 * np.abs(turned).max() * len(turned)


@pytest.mark.parametrize("kind", ["modes", "heat"])
def test_starts_are_displaced_and_keep_their_chemistry(module, fragment, monkeypatch, kind):
    truth = module("known_truth")
    monkeypatch.setattr(truth, "PULLING_STEPS", 250)
    monkeypatch.setattr(truth, "MOST_HOT_STEPS", 250)
    monkeypatch.setattr(truth, "COOLING_STEPS", 250)
    make = {"modes": truth.displaced_by_modes, "heat": truth.displaced_by_heat}[kind]
    moved = make(fragment, 1.0, seed=2)
    alpha = truth.alpha_carbons(fragment)
    assert 0.3 < truth.root_mean_square_distance(moved[alpha], fragment.positions[alpha]) < 2.5
    assert np.allclose(moved[alpha].mean(axis=0), fragment.positions[alpha].mean(axis=0), atol=1e-3)
    before, after = (geometry_report(fragment.topology, where) for where in (fragment.positions, moved))
    change = compare_geometry(before, after)
    assert not change.peptide_flips and not change.inverted_centres
    assert after.bond_rmsd < 0.03 and after.angle_rmsd < 4


def test_models_are_made_once_complete_and_of_the_same_atoms(module, small_data, tmp_path, monkeypatch):
    truth = module("known_truth")
    lines = [line for line in fragment_lines(small_data, 1, 12) if line[12:16].strip() != "CB"]
    other = read_model(written(tmp_path / "deposited.pdb", lines))
    (tmp_path / "other.pdb").write_text((tmp_path / "deposited.pdb").read_text())
    case = truth.KnownTruth("deposited.pdb", "modes", 1.0)
    monkeypatch.setattr(truth, "PULLING_STEPS", 250)
    monkeypatch.setattr(truth, "COOLING_STEPS", 250)
    whole, start = truth.make_models(case, (tmp_path,), tmp_path / "made")
    assert whole.topology.getNumAtoms() > other.topology.getNumAtoms()
    assert "CB" in {atom.name for atom in whole.topology.atoms()}
    assert [a.name for a in whole.topology.atoms()] == [a.name for a in start.topology.atoms()]
    monkeypatch.setattr(truth, "settled", None)
    again = truth.make_models(case, (tmp_path,), tmp_path / "made")
    np.testing.assert_array_equal(again[1].positions, start.positions)


def test_atoms_that_differ_by_name_alone_may_be_swapped(module, small_data):
    strength = module("strength")
    model = read_model(small_data / FRAGMENT)
    numbers = {(a.residue.index, a.name): a.index for a in model.topology.atoms()}
    names = {residue.index: residue.name for residue in model.topology.residues()}

    def swapped(residue: str, *pairs: tuple[str, str]) -> float:
        positions = model.positions.copy()
        index = next(i for i, name in names.items() if name == residue)
        for one, two in pairs:
            i, j = numbers[index, one], numbers[index, two]
            positions[[i, j]] = positions[[j, i]]
        return strength.rmsd_to_truth(model, positions)

    assert swapped("PHE", ("CD1", "CD2"), ("CE1", "CE2")) == pytest.approx(0, abs=1e-6)
    assert swapped("GLU", ("OE1", "OE2")) == pytest.approx(0, abs=1e-6)
    assert swapped("PHE", ("CD1", "CD2")) > 0.05 and swapped("LEU", ("CD1", "CD2")) > 0.05
    shifted = replace(model, positions=model.positions + np.array([3.0, 0.0, 4.0]))
    assert strength.rmsd_to_truth(shifted, model.positions) == pytest.approx(5)


def row(strength: str, rmsd: float, **more) -> dict:
    geometry = {
        "bond_rmsd": 0.01,
        "angle_rmsd": 2.0,
        "clashes": 1,
        "ramachandran_outliers": 0,
        "rotamer_outliers": 0,
        "twisted_peptides": 0,
    }
    correlations = {name: [0.5, 0.8, 0.9] for name in ("cc", "cc_noiseless", "cc_free")}
    return {
        "case": "adk",
        "resolution": 5.0,
        "strength": strength,
        "protocol": "quick",
        "steps": None,
        "search": "off",
        "seed": 0,
        "seconds": 3.0,
        "found_strength": 200.0,
        "final_strength": 22.5,
        "rmsd": [4.0, rmsd],
        "ca_rmsd": [3.0, rmsd / 2],
        "relaxed": geometry,
        "final": geometry,
        **correlations,
        **more,
    }


def test_a_fit_is_measured_against_the_truth(module, small_data, tmp_path, monkeypatch):
    strength, truth = module("strength"), module("known_truth")
    written(tmp_path / "deposited.pdb", fragment_lines(small_data, 1, 12))
    monkeypatch.setitem(strength.CASES, "small", truth.KnownTruth("deposited.pdb", "modes", 1.0))
    monkeypatch.setattr(truth, "PULLING_STEPS", 250)
    monkeypatch.setattr(truth, "COOLING_STEPS", 250)
    place = strength.Place(tmp_path, tmp_path / "out")
    figures = strength.fit_task(strength.Task("small", 4.0, "40", "quick", 40, "off"), place)
    model, start = place.models("small")
    assert figures["rmsd"][0] == pytest.approx(strength.rmsd_to_truth(model, start.positions))
    assert figures["ca_rmsd"][1] != figures["ca_rmsd"][0] and figures["n_residues"] == 12
    assert figures["found_strength"] == figures["final_strength"] == 40
    assert 0.5 < figures["cc_free"][2] < figures["cc"][2] < figures["cc_noiseless"][2] < 1
    assert figures["truth"]["clashes"] == figures["truth"]["twisted_peptides"] == 0
    assert module("strength_results").table([json.loads(json.dumps(figures))]).row_count == 1


def test_files_of_rows_are_merged_tabulated_and_plotted(module, tmp_path, monkeypatch, capsys):
    results = module("strength_results")
    first, second = tmp_path / "fits.jsonl", tmp_path / "all.json"
    first.write_text(
        "\n".join(json.dumps(row(*each)) for each in (("20", 1.5), ("80", 1.2))) + '\n{"case": "ad'
    )
    second.write_text(json.dumps([row("80", 1.0), row("auto", 1.05)]))
    rows = results.read_rows([first, second, tmp_path / "none.jsonl"])
    assert [(each["strength"], each["rmsd"][1]) for each in rows] == [
        ("20", 1.5),
        ("80", 1.0),
        ("auto", 1.05),
    ]
    assert results.best_fixed(rows) == {("adk", 5.0): 1.0}
    command = ["strength.py", "--tabulate", str(first), str(second), "--output", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", [*command, "--json", str(tmp_path / "merged.json")])
    module("strength").main()
    printed = capsys.readouterr().out
    assert "auto (200, 22.5)" in printed and "1.05" in printed
    by_strength = results.summary(rows)
    cells = dict(
        zip([c.header for c in by_strength.columns][:5], [list(c.cells) for c in by_strength.columns])
    )
    assert cells["strength"] == ["20", "80", "auto"] and cells["within 5%"] == ["0", "1", "1"]
    assert cells["ratio"] == ["1.50", "1.00", "1.05"]
    assert (tmp_path / "out" / "strength.png").stat().st_size > 10000
    assert len(json.loads((tmp_path / "merged.json").read_text())) == 3


def test_fits_that_are_done_are_not_made_again(module, tmp_path, monkeypatch):
    strength = module("strength")
    command = ["--cases", "adk", "--resolutions", "5", "--strengths", "20,80,auto", "--protocol", "quick"]
    options = strength.parsed([*command, "--search", "off", "--output", str(tmp_path)])
    assert [task.strength for task in strength.tasks_of(options)] == ["20", "80", "auto"]
    (tmp_path / "fits.jsonl").write_text(json.dumps(row("80", 1.2)) + "\n")
    asked = []
    monkeypatch.setattr(strength, "run_tasks", lambda tasks, *_: asked.extend(tasks))
    monkeypatch.setattr(sys, "argv", ["strength.py", *command, "--search", "off", "--output", str(tmp_path)])
    strength.main()
    assert [task.strength for task in asked] == ["20", "auto"]


def test_an_unknown_case_is_named(module):
    strength = module("strength")
    with pytest.raises(InputError, match=r'"none".*adk|none.*adk'):
        strength.tasks_of(strength.parsed(["--cases", "adk,none"]))
