"""Students learn a teacher; a distillation ends where they are near enough, and says so where they are not."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from openmm_density.base.errors import InputError, SimulationError
from openmm_density.extensions.distillation import distill, read_potential, rounds, write_results
from openmm_density.extensions.distillation.geometries import Springs, conformers
from openmm_density.extensions.distillation.labels import Labeller
from openmm_density.extensions.distillation.molecule import ligand_of, read_molecule
from openmm_density.extensions.distillation.rounds import DistillationRun, DistillationSettings
from openmm_density.extensions.distillation.students import Committee, Student, TrainingData

pytest.importorskip("rdkit", reason="the extra [ligands] is not installed")
pytest.importorskip("safetensors", reason="the extra [ligands] is not installed")

SHORT = {
    "_HOT_STEPS": 16,
    "_COLD_BEGINNING": 2,
    "_COLD_STEPS": 10,
    "_SPRING_STEPS": 80,
    "_SPRING_EVERY": 8,
    "_RELAXING_STEPS": 5,
}
TINY = DistillationSettings(
    layers=1,
    n_radial=6,
    n_conformers=2,
    n_first=24,
    n_added=4,
    n_held_out=4,
    first_steps=10,
    steps=5,
    most_rounds=1,
)


@pytest.fixture(autouse=True)
def _short_dynamics(monkeypatch):
    for name, steps in SHORT.items():
        monkeypatch.setattr(rounds, name, steps)


@pytest.fixture(scope="module")
def methanol():
    return read_molecule("CO")


def mmff(molecule):
    """A teacher that takes no time."""
    springs = Springs(molecule)

    def evaluate(positions):
        from rdkit.Chem import AllChem

        own = type(molecule)(molecule)
        for k, place in enumerate((positions * 10).tolist()):
            own.GetConformer().SetAtomPosition(k, place)
        properties = AllChem.MMFFGetMoleculeProperties(own)
        energy = AllChem.MMFFGetMoleculeForceField(own, properties).CalcEnergy() * 4.184
        return energy, springs.forces(positions[None])[0], np.linspace(-0.5, 0.5, len(positions))

    return evaluate


def run(molecule, settings=TINY, evaluate=None, **options):
    labeller = Labeller(ligand_of(molecule), evaluate=evaluate or mmff(molecule))
    return DistillationRun(molecule, labeller, settings, **options).distilled()


def trained(molecule, threads, steps=40):
    ligand = ligand_of(molecule)
    start = conformers(molecule, 1, 1)[0]
    positions = start + np.random.default_rng(3).normal(size=(40, *start.shape)) * 0.006
    energies, forces, _ = zip(*map(mmff(molecule), positions))
    data = TrainingData(positions, np.array(energies), np.array(forces))
    network = {"features": 32, "layers": 1, "n_radial": 6, "cutoff": 0.5}
    learned = TrainingData(*(each[:32] for each in (data.positions, data.energies, data.forces)))
    others = TrainingData(*(each[32:] for each in (data.positions, data.energies, data.forces)))
    committee = Committee([Student(ligand, learned, network, seed) for seed in (1, 2)], threads)

    def error():
        return np.abs(committee.mean_forces(others.positions) - others.forces).mean()

    before = error()
    committee.learn(learned, steps, 5e-3, 4)
    return before, error(), committee


def test_students_learn_forces_they_were_not_shown_and_the_same_with_any_threads(methanol):
    before, after, committee = trained(methanol, 1, 120)
    assert after < 0.5 * before
    assert [step for step, _ in committee.students[0].curve] == [25, 50, 75, 100, 120]
    one, other = trained(methanol, 1, 4)[2], trained(methanol, 2, 4)[2]
    for a, b in zip(one.students, other.students):
        for name, tensor in a.averaged.tensors().items():
            assert torch.equal(tensor, b.averaged.tensors()[name]), name
    weights = [student.averaged.embedding.weight for student in one.students]
    assert not torch.equal(*weights)


def test_a_distillation_that_is_not_near_enough_says_so(methanol, tmp_path):
    told = []
    found = run(methanol, progress=lambda done, total, doing: told.append((done, total, doing)))
    potential = found.potential
    assert not potential.done and potential.accuracy.force_mae > 1
    assert potential.accuracy == found.rounds[-1].accuracy
    # Of the first round: its held-out geometries and those that the students disagreed on.
    first, second = found.rounds
    assert second.n_geometries > first.n_geometries and first.n_geometries + first.n_put_aside == 24
    assert {"labels", "training 1 of 2", "labels at 300 K", "relaxed geometry"} <= {
        doing for _, _, doing in told
    }
    assert all(0 <= done <= total for done, total, _ in told)

    path = tmp_path / "methanol.safetensors"
    write_results(path, found, 1.5)
    assert read_potential(path).done is False
    summary = json.loads((tmp_path / "methanol.json").read_text())
    assert summary["done"] is False and summary["limit"] == 1.0
    assert summary["accuracy"]["force_mae"] == potential.accuracy.force_mae
    assert [each["n_geometries"] for each in summary["rounds"]] == [
        each.n_geometries for each in found.rounds
    ]
    assert (tmp_path / "methanol.png").read_bytes().startswith(b"\x89PNG")


def test_the_same_seed_gives_the_same_potential(methanol):
    settings = replace(TINY, most_rounds=0, first_steps=4)
    one, other, third = (run(methanol, settings, seed=seed) for seed in (3, 3, 4))
    for a, b in zip(one.potential.students, other.potential.students):
        assert all(torch.equal(tensor, b[name]) for name, tensor in a.items())
    assert one.potential.accuracy == other.potential.accuracy != third.potential.accuracy


def test_the_teacher_is_gfn2_in_its_solvent(tmp_path):
    pytest.importorskip("tblite", reason="the extra [ligands] is not installed")
    settings = replace(TINY, most_rounds=0, n_first=12, first_steps=2)
    labels = tmp_path / "water.labels"
    found = distill("O", solvent="water", labels=labels, threads=2, settings=settings)
    assert (found.potential.teacher.method, found.potential.teacher.solvent) == ("GFN2-xTB", "water")
    assert found.potential.teacher.version.startswith("tblite ")
    assert found.potential.charges.sum() == pytest.approx(0, abs=1e-9) and found.potential.charges[0] < -0.5
    again = distill("O", solvent="water", labels=labels, threads=1, settings=settings)
    assert found.n_labels > 12 and again.n_labels == 0
    assert again.potential.accuracy == found.potential.accuracy


def test_a_teacher_without_answers_ends_the_run(methanol):
    def silent(positions):
        return np.nan, np.zeros_like(positions), np.zeros(len(positions))

    with pytest.raises(SimulationError, match="an answer for 0 of 24 geometries only: check the charge"):
        run(methanol, evaluate=silent)


@pytest.mark.parametrize(
    ("given", "said"), [({"threads": 0}, "threads must be 1"), ({"seed": -1}, "seed must be 0")]
)
def test_wrong_numbers_are_refused(given, said):
    with pytest.raises(InputError, match=said):
        distill("CO", **given)
