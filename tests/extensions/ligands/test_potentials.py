"""Which potential a ligand gets: that of a file, of the cache, or one that is distilled; and what is said of the others."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from openmm import app

from openmm_density.base.errors import InputError
from openmm_density.extensions.ligands import potentials
from openmm_density.extensions.ligands.potentials import LigandSources, find_potentials
from openmm_density.models import prepare, read_model

from ...models.test_ligands import SMILES
from .conftest import write_model

safetensors = pytest.importorskip("safetensors", reason="the extra [ligands] is not installed")


@pytest.fixture(scope="module")
def forcefield():
    return app.ForceField("amber14/protein.ff14SB.xml")


@pytest.fixture
def acetamide_file(agreed, tmp_path):
    from openmm_density.extensions.distillation import write_potential

    write_potential(tmp_path / "acm.safetensors", agreed)
    return tmp_path / "acm.safetensors"


@pytest.fixture
def distilled(agreed, tmp_path, monkeypatch):
    """Distil in no time, into a cache of this test's; return what was asked for."""
    asked: list[tuple[str, str]] = []

    def distill(name, *, smiles, labels, threads, progress):
        asked.append((name, smiles))
        labels.write_bytes(b"")
        progress(1, 2, "training")
        return SimpleNamespace(potential=agreed)

    monkeypatch.setenv("OPENMM_DENSITY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("openmm_density.extensions.distillation.distill", distill, raising=False)
    ligand = replace(agreed.ligand, smiles=SMILES)
    monkeypatch.setattr(potentials, "_molecule", lambda name, smiles: ligand)
    return asked


def test_a_file_is_for_the_ligand_of_its_atoms_and_bonds(model, forcefield, acetamide_file):
    found = find_potentials(model, forcefield, LigandSources(files=acetamide_file))
    assert list(found.by_name) == ["ACM"] and found.paths == [acetamide_file] and found.notes == []


def test_a_potential_is_distilled_once_and_kept(model, forcefield, distilled):
    told = []
    sources = LigandSources(smiles={"ACM": SMILES}, threads=1)
    found = find_potentials(model, forcefield, sources, lambda *said: told.append(said))
    assert distilled == [("ACM", SMILES)] and told == [(1, 2, "ACM: training")]
    again = find_potentials(model, forcefield, sources)
    assert len(distilled) == 1 and again.by_name["ACM"].sha256 == found.by_name["ACM"].sha256
    kept = [path.name for path in found.paths[0].parent.iterdir() if not path.name.startswith(".")]
    assert kept == [found.paths[0].name] and kept[0].startswith("ACM-")


def test_ligands_whose_bonds_are_not_known_stay_rigid_and_are_named(
    forcefield, acetamide_file, agreed, tmp_path
):
    from openmm_density.extensions.distillation import write_potential

    place = np.array([40.0, 0.0, 20.0])
    other = write_model(
        tmp_path / "model.pdb", ("ACM", 501, range(4), place / 2), ("XYZ", 502, range(3), place)
    )
    write_potential(acetamide_file, replace(agreed, done=False))
    found = find_potentials(read_model(other), forcefield, LigandSources(files=[acetamide_file]))
    assert list(found.by_name) == ["ACM"]
    assert found.notes[0].endswith(": A XYZ 502.") and found.notes[0].startswith("Kept rigid")
    assert "not as near to GFN2-xTB as it should be" in found.notes[1]


@pytest.fixture
def anion_file(agreed, tmp_path):
    """Return the file of a molecule that has the heavy atoms and bonds of acetamide."""
    from openmm_density.extensions.distillation import write_potential

    write_potential(
        tmp_path / "anion.safetensors", replace(agreed, ligand=replace(agreed.ligand, smiles="CC([NH-])=O"))
    )
    return tmp_path / "anion.safetensors"


@pytest.fixture
def two_names(forcefield, tmp_path):
    """Return a model with two ligands of the same heavy atoms and bonds under two names."""
    place = np.array([40.0, 0.0, 20.0])
    path = write_model(tmp_path / "two.pdb", ("ACM", 501, range(4), place / 2), ("ACX", 502, range(4), place))
    return read_model(path)


def test_of_molecules_with_the_same_heavy_atoms_each_ligand_gets_that_of_its_smiles(
    two_names, forcefield, acetamide_file, anion_file, agreed, monkeypatch
):
    smiles = {"ACM": SMILES, "ACX": "CC([NH-])=O"}
    monkeypatch.setattr(
        potentials, "_molecule", lambda name, said: replace(agreed.ligand, smiles=smiles[name])
    )
    for files in ([acetamide_file, anion_file], [anion_file, acetamide_file]):
        found = find_potentials(two_names, forcefield, LigandSources(smiles, files=files)).by_name
        assert {name: each.path for name, each in found.items()} == {"ACM": acetamide_file, "ACX": anion_file}
    with pytest.raises(InputError, match=r"A ACM 501 may be .* by its atoms and bonds"):
        find_potentials(two_names, forcefield, LigandSources(files=[acetamide_file, anion_file]))
    one = find_potentials(two_names, forcefield, LigandSources(files=acetamide_file))
    assert set(one.by_name) == {"ACM", "ACX"}


def test_what_is_wrong_with_a_smiles_is_told_before_any_is_distilled(
    model, forcefield, distilled, agreed, monkeypatch
):
    with pytest.raises(InputError, match="must name residues of"):
        find_potentials(model, forcefield, LigandSources(smiles={"ACM": SMILES, "XYZ": "CO"}))
    short = replace(agreed.ligand, elements=(6, 8), bonds=((0, 1, 1.0),), smiles="CO")
    monkeypatch.setattr(potentials, "_molecule", lambda name, smiles: short)
    with pytest.raises(InputError) as told:
        find_potentials(model, forcefield, LigandSources(smiles={"ACM": "CO"}))
    assert str(told.value) == (
        'A ACM 501: its 4 heavy atoms and their bonds are not the 2 of the SMILES "CO": give that of what is in the model.'
    )
    assert distilled == []


@pytest.mark.parametrize(
    ("sources", "said"),
    [
        (
            LigandSources(),
            "A ACM 501 can have no potential, as its charge and the orders of its bonds are not known",
        ),
        (LigandSources(files="another"), "which no free ligand"),
    ],
)
def test_what_can_have_no_potential_is_told(model, forcefield, agreed, tmp_path, sources, said):
    from openmm_density.extensions.distillation import write_potential

    if sources.files:
        bonds = agreed.ligand.bonds
        other = replace(agreed.ligand, bonds=(bonds[0], (0, 2, 1.0), *bonds[2:]))
        write_potential(tmp_path / "other.safetensors", replace(agreed, ligand=other))
        sources = LigandSources(files=[tmp_path / "other.safetensors"])
    with pytest.raises(InputError) as told:
        find_potentials(model, forcefield, sources)
    assert said in str(told.value) and "\n" not in str(told.value)


def test_models_without_such_ligands_are_refused(forcefield, tmp_path):
    path = write_model(tmp_path / "model.pdb")
    with pytest.raises(InputError, match="no ligand that the force field does not know"):
        find_potentials(read_model(path), forcefield, LigandSources())


def test_a_copy_that_lacks_atoms_stays_rigid_beside_a_whole_one(forcefield, acetamide_file, tmp_path):
    places = np.array([40.0, 0.0, 10.0]), np.array([40.0, 0.0, 20.0])
    truncated, whole = ("ACM", 501, range(3), places[0]), ("ACM", 502, range(4), places[1])
    model = read_model(write_model(tmp_path / "model.pdb", truncated, whole))
    found = find_potentials(model, forcefield, LigandSources(files=acetamide_file))
    prepared = prepare(model, ligand_forcefield="xtb", ligand_potentials=found.by_name)
    assert [placed.label for placed in prepared.potentials] == ["A ACM 502"]
    assert (
        "Kept rigid, as they are not what their SMILES says: A ACM 501 (lacks 1 of 4 heavy atoms)."
        in prepared.report.sentences
    )
    alone = read_model(write_model(tmp_path / "alone.pdb", truncated))
    with pytest.raises(
        InputError, match=r"no ligand in it is what its SMILES says: A ACM 501 \(lacks 1 of 4"
    ):
        find_potentials(alone, forcefield, LigandSources(files=acetamide_file))
    with pytest.raises(
        InputError, match=r"no ligand in it is what its SMILES says: A ACM 501 \(lacks 1 of 4"
    ):
        prepare(alone, ligand_forcefield="xtb", ligand_potentials=found.by_name)


def test_a_file_and_a_smiles_that_contradict_one_another_are_refused(
    model, forcefield, anion_file, agreed, monkeypatch
):
    monkeypatch.setattr(potentials, "_molecule", lambda name, said: replace(agreed.ligand, smiles=said))
    with pytest.raises(InputError) as told:
        find_potentials(model, forcefield, LigandSources({"ACM": SMILES}, files=anion_file))
    assert 'is of "CC([NH-])=O", while ligands="ACM=CC(=O)N" says another molecule' in str(told.value)
    same = find_potentials(model, forcefield, LigandSources({"ACM": "CC([NH-])=O"}, files=anion_file))
    assert list(same.by_name) == ["ACM"]


def test_a_solvent_that_is_counted_twice_is_told(model, forcefield, agreed, tmp_path):
    from openmm_density.extensions.distillation import write_potential

    path = tmp_path / "wet.safetensors"
    write_potential(path, replace(agreed, teacher=replace(agreed.teacher, solvent="water")))
    dry, wet = (
        find_potentials(model, forcefield, LigandSources(files=path, solvent=s)) for s in ("none", "obc")
    )
    assert dry.notes == []
    assert wet.notes == [
        "The potential of ACM was learned in water, and the fit has a solvent of its own: it is counted twice. Distil ACM "
        "without a solvent, and give that file."
    ]


def test_fits_that_need_one_potential_at_once_make_it_once(model, forcefield, distilled, monkeypatch):
    """As the fits of a batch: three wait while the first distils, and read what it has kept."""
    made, waiting = potentials.same_molecule, threading.Semaphore(0)

    def distils(path):
        # The first has the lock: it goes on once the others are seen to wait.
        if not distilled:
            assert all(waiting.acquire(timeout=60) for _ in range(3))
        return made(path)

    told = threading.local()

    def say(done, of, doing):
        if "waiting for its potential" in doing and not hasattr(told, "once"):
            told.once = True
            waiting.release()

    monkeypatch.setattr(potentials, "same_molecule", distils)
    sources = LigandSources(smiles={"ACM": SMILES}, threads=1)
    with ThreadPoolExecutor(4) as pool:
        found = [
            each.result()
            for each in [pool.submit(find_potentials, model, forcefield, sources, say) for _ in range(4)]
        ]
    assert distilled == [("ACM", SMILES)] and len({each.by_name["ACM"].sha256 for each in found}) == 1
