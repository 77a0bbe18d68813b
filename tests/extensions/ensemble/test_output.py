"""What is said of an ensemble's ligands whose potentials do not know them."""

from types import SimpleNamespace

import numpy as np
from openmm import app

from openmm_density.extensions.ensemble import output as ensembles
from openmm_density.extensions.ensemble.output import held_ligands, unknown_ligands


class Doubting:
    """A potential that knows a bond of 1.5 Å."""

    bound = 1.0

    def disagreement(self, positions):
        return 100 * abs(float(np.linalg.norm(positions[1] - positions[0])) - 0.15)


def replicas_of(*lengths):
    """Return models of three atoms, of which the last two are a ligand of so many Å."""
    models = np.zeros((len(lengths), 3, 3))
    models[:, 2, 0] = lengths
    placed = SimpleNamespace(label="A LIG 1", atoms=np.array([1, 2]), potential=Doubting())
    return SimpleNamespace(potentials=[placed]), models


def test_models_with_a_ligand_that_is_not_known_are_named():
    prepared, models = replicas_of(1.5, 1.8, 1.55, 1.2)
    assert unknown_ligands(prepared, models) == [{"residue": "A LIG 1", "models": [2, 4]}]
    assert unknown_ligands(*replicas_of(1.5, 1.5)) == []
    assert unknown_ligands(SimpleNamespace(potentials=[]), models) == []


def test_a_note_says_so(monkeypatch):
    told = {
        "rmsf": [{"residue": "A ALA 1", "rmsf": 0.5}],
        "unknown_ligands": [{"residue": "A LIG 1", "models": [2, 4]}],
        "held_ligands": [{"residue": "A LIG 1", "held_times": [0, 1, 0, 3]}],
    }
    monkeypatch.setattr(ensembles, "ensemble_summary", lambda *_: told)
    monkeypatch.setattr(ensembles, "ensemble_in_words", lambda _: "2 replicas.")
    topology = app.Topology()
    chain = topology.addChain("A")
    for number in ("1", "2"):
        topology.addResidue("ALA", chain, number)
    found = ensembles.ensemble_told(object(), SimpleNamespace(model=SimpleNamespace(topology=topology)))
    assert found.figures == {"ensemble": told} and found.residues == {"rmsf": [0.5, None]}
    assert found.notes == [
        "2 replicas.",
        "A LIG 1 has a shape that its potential does not know in model 2, model 4 of ensemble.cif, where springs held it "
        "back: do not believe it there.",
        "A LIG 1 left what its potential knows in 2 replicas of the 4 of ensemble.cif, where springs held it 4 times.",
    ]


def test_holds_are_counted_by_model():
    of_ligands = [{"label": name, "held_times": k} for k in (2, 0, 1) for name in ("A LIG 1", "B LIG 2")]
    of_ligands[1]["held_times"] = of_ligands[5]["held_times"] = 0
    ensemble = SimpleNamespace(models=np.zeros((3, 4, 3)), ligands=of_ligands)
    assert held_ligands(ensemble, [2, 0, 1]) == [{"residue": "A LIG 1", "held_times": [1, 2, 0]}]
    assert held_ligands(SimpleNamespace(models=ensemble.models, ligands=[]), [0, 1, 2]) == []
