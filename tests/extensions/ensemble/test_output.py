"""What is said of an ensemble: its heaviest conformation, and ligands whose potentials do not know them."""

from types import SimpleNamespace

import numpy as np

from openmm_density.base.page_blocks import Text
from openmm_density.extensions.ensemble.output import ensemble_section, unknown_ligands
from openmm_density.extensions.ensemble.verdict import MainConformation, Verdict


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


def test_an_ensembles_heaviest_conformation_is_shown_alone():
    verdict = Verdict(
        "shells", (6.0, 5.0), 0.8, 0.82, 0.81, 0.9, 0.01, 0.9, 0.95, 2, MainConformation(0.84, 0.011)
    )
    told = {
        "replicas": 2,
        "weights": [0.6, 0.4],
        "conformations": [{"weight": 0.6, "models": [1]}, {"weight": 0.4, "models": [2]}],
        "verdict": verdict.as_dict(),
        "cc_single": 0.8,
        "cc_ensemble": 0.9,
    }
    summary = {
        "ensemble": told,
        "residues": [{"residue": "A ALA 1", "chain": "A", "number": "1", "kind": "protein", "rmsf": 0.3}],
    }
    said = [block.text for block in ensemble_section(summary).blocks if isinstance(block, Text)]
    assert (
        "heaviest conformation alone, with B by residue: free 0.840. The others add +0.060 ± 0.011" in said[1]
    )
    told["verdict"]["main"] = None
    assert len([block for block in ensemble_section(summary).blocks if isinstance(block, Text)]) == 1
