"""What a fit says of a prediction's confidence."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from openmm_density import DensityFit, DensityMap
from openmm_density.extensions.predictions import Predictions
from openmm_density.extensions.predictions.output import confidence_doubts
from openmm_density.fitting.protocols import find_protocol
from openmm_density.fitting.unseen import unshown_residues
from openmm_density.models import Model, read_model
from openmm_density.models.confidence import Confidence
from openmm_density.models.predictions import residue_confidence

from ..cli.commands import run
from ..fragments import RESOLUTION, fragment
from ..predicted_models import write_prediction
from ..small_models import FRAGMENT


def _residues(correlations: np.ndarray) -> list[dict[str, object]]:
    return [
        {
            "residue": f"A GLY {k}",
            "chain": "A",
            "number": k,
            "insertion_code": "",
            "correlation": float(value),
        }
        for k, value in enumerate(correlations, start=1)
    ]


@pytest.mark.parametrize(
    ("confidence", "correlation", "said"),
    [
        (90.0, 0.3, "disagree with the map"),
        (45.0, 0.8, "clear in the map"),
        (45.0, 0.3, None),
        (90.0, 0.7, None),
    ],
)
def test_doubts_are_where_map_and_confidence_say_otherwise(
    confidence: float, correlation: float, said: str | None
) -> None:
    correlations, plddt = np.full(60, 0.7), np.full(60, 75.0)
    correlations[20:32], plddt[20:32] = correlation, confidence
    doubts = confidence_doubts("predictions", _residues(correlations), plddt)
    if said is None:
        assert not doubts
        return
    (doubt,) = doubts
    assert said in doubt.sentence
    (place,) = doubt.places
    # Means over 5 residues blur the ends.
    assert (
        {f"A GLY {k}" for k in range(24, 30)} <= set(place.members) <= {f"A GLY {k}" for k in range(19, 35)}
    )


def test_a_fit_of_a_prediction_keeps_its_confidence(tmp_path: Path) -> None:
    model = fragment(tmp_path / "plain.pdb", residues=8)
    DensityMap.simulate(model.topology, model.positions, RESOLUTION, 1.25, margin=14.0).write(
        tmp_path / "map.mrc"
    )
    values = np.array([45.0, 52.0, 60.0, 71.0, 80.0, 92.0, 90.0, 88.0])
    start = write_prediction(tmp_path / "model.pdb", values=values, source=tmp_path / "plain.pdb")
    command = ("fit", start, tmp_path / "map.mrc", "--resolution", RESOLUTION, "--protocol", "quick")
    status = run(
        *(*command, "--steps", 40, "--place", "off", "--predicted", "yes", "--output", tmp_path / "out")
    )
    assert status == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert [row["plddt"] for row in summary["residues"]] == pytest.approx(values)
    assert summary["prediction"]["unsure_residues"] == 1
    assert any("--predicted no" in note for note in summary["notes"])
    fitted = read_model(tmp_path / "out" / "fitted.cif")
    assert residue_confidence(fitted) == pytest.approx(values)
    assert fitted.known_b_factors.max() > 200  # of pLDDT 45
    assert "confidence" in (tmp_path / "out" / "report.html").read_text()


def test_unsure_residues_are_pulled_once_the_map_shows_them(small_data: Path) -> None:
    topology = read_model(small_data / FRAGMENT).topology
    plddt = np.full(topology.getNumResidues(), 90.0)
    plddt[40:52] = 45.0
    correlations = np.full(len(plddt), 0.8)
    assert not len(unshown_residues(topology, correlations, plddt))
    correlations[40:52] = 0.3
    assert np.array_equal(unshown_residues(topology, correlations, plddt), np.arange(40, 52))
    assert not len(unshown_residues(topology, correlations, np.full(len(plddt), 90.0)))
    assert not len(unshown_residues(topology, correlations, None))


def test_the_density_of_some_atoms_pulls_these_alone(map5925: DensityMap, emd5925: Model) -> None:
    topology, positions = emd5925.topology, emd5925.positions
    whole = DensityFit(map5925, topology, 3.64, positions=positions)
    kept = np.arange(len(whole.atoms)) % 3 > 0
    some = whole.with_some_atoms(kept)
    alone = DensityFit(map5925, topology, 3.64, positions=positions, atoms=whole.atoms[kept])
    assert np.array_equal(some.atoms, alone.atoms)
    assert some.similarity(positions) == pytest.approx(alone.similarity(positions), abs=1e-4)
    assert some.default_strength == pytest.approx(alone.default_strength)


def test_torsions_of_predictions_are_held_and_distances_where_their_errors_are_given() -> None:
    protocol = find_protocol("standard", 4.3)
    confidence = Confidence(np.full(9, 90.0), "", None, "a test", errors=np.zeros((2, 2)))
    assert Predictions().protocol(protocol, {"confidence": None}) is protocol
    for given, more in (
        (confidence, {"torsion", "distance"}),
        (replace(confidence, errors=None), {"torsion"}),
    ):
        held = Predictions().protocol(protocol, {"confidence": given})
        for before, after in zip(protocol.stages, held.stages):
            assert set(after.restraints) == set(before.restraints) | more
    bare = protocol.with_restraints(["chirality"])
    assert Predictions().protocol(bare, {"confidence": confidence}) == bare
