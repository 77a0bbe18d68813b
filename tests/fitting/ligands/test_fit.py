"""A fit with ligands that have a potential: what it says of them, in its result and where it goes on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from openmm_density import DensityMap
from openmm_density.errors import InputError
from openmm_density.fitting import FlexibleFit, find_protocol
from openmm_density.fitting.checkpoints import RunFolder
from openmm_density.fitting.output.doubts import _unknown_ligand_doubts
from openmm_density.fitting.output.ligands import ligand_figures

pytest.importorskip("safetensors", reason="the extra [ligands] is not installed")

RESOLUTION = 5.0


@pytest.fixture(scope="module")
def files(agreed, unsure, tmp_path_factory):
    """Return the files of a potential that knows all geometries, and of one that knows none."""
    from openmm_density.distillation import save

    folder = tmp_path_factory.mktemp("potentials")
    for name, potential in {"agreed": agreed, "unsure": unsure}.items():
        save(folder / f"{name}.safetensors", potential)
    return folder


@pytest.fixture(scope="module")
def density_map(model):
    return DensityMap.simulate(model.topology, model.positions, RESOLUTION, 2.0, margin=8.0)


def fit_with(model, density_map, file, **options):
    protocol = replace(find_protocol("quick", RESOLUTION), strength=20.0, minimize_first=5, minimize_last=5)
    chosen = {"platform": "CPU", "threads": 1, "report_interval": 40, "place": "off", "search": "off"}
    return FlexibleFit(
        model,
        density_map,
        RESOLUTION,
        protocol.with_steps(40),
        ligand_potentials=file,
        **{"ligand_forcefield": "xtb", **chosen, **options},
    )


@pytest.fixture(scope="module")
def doubted(model, density_map, files, tmp_path_factory):
    """Return a fit whose ligands' potential never knows them, its result and its folder."""
    folder = RunFolder(tmp_path_factory.mktemp("run"))
    fit = fit_with(model, density_map, files / "unsure.safetensors")
    return fit, fit.run(folder), folder


def test_a_ligand_that_its_potential_does_not_know_is_held_and_doubted(doubted, files):
    fit, result, _ = doubted
    figures = ligand_figures(result)
    # At the start, in the end, and when each stage ends, as all of them are short.
    looks = 2 + len(fit.protocol.stages)
    assert [each["residue"] for each in figures] == ["A ACM 501", "A ACM 502"]
    for each in figures:
        assert each["file"] == str(files / "unsure.safetensors") and len(each["sha256"]) == 64
        assert (
            each["unknown"] == each["looks"] == looks
            and each["held_times"] == 1
            and each["first_unknown"] == 0
        )
        assert each["disagreement_worst"] > each["disagreement_bound"]
    doubts = _unknown_ligand_doubts({"ligand_potentials": figures})
    assert [doubt.places[0].label for doubt in doubts] == ["A ACM 501", "A ACM 502"]
    assert "was held back 1 time" in doubts[0].sentence
    known = [{**each, "unknown": 0} for each in figures]
    assert _unknown_ligand_doubts({"ligand_potentials": known}) == []


def test_a_fit_does_not_go_on_with_another_file(doubted, model, density_map, files):
    _, _, folder = doubted
    assert folder.load().ligands[0]["path"] == str(files / "unsure.safetensors")
    other = fit_with(model, density_map, files / "agreed.safetensors")
    with pytest.raises(InputError, match="another potential of A ACM 501"):
        other.run(folder)


def test_potentials_are_for_xtb_alone(model, density_map, files):
    with pytest.raises(InputError, match='can only be used with ligand_forcefield="xtb"'):
        fit_with(model, density_map, files / "agreed.safetensors", ligand_forcefield="rigid")
