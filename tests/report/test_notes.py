"""What is told of a fit in sentences."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest
from openmm import app

from openmm_density import DensityMap
from openmm_density.models import Model
from openmm_density.models.preparation import prepare
from openmm_density.report.notes import _hydrogens_note, _restraint_note, _sharpened_note
from openmm_density.restraints import make_restraints
from openmm_density.validation.correlation import MapCorrelation

from ..fragments import fragment

RESOLUTION = 3.0


def fit_and_result(
    model: SimpleNamespace, reference: object, density_map: DensityMap
) -> tuple[object, object]:
    def correlation(topology: app.Topology) -> MapCorrelation:
        return MapCorrelation(density_map, topology, RESOLUTION)

    prepared = SimpleNamespace(model=model, input_positions=lambda positions: positions)
    fit = SimpleNamespace(reference=reference, fit_map=SimpleNamespace(correlation=correlation))
    return fit, SimpleNamespace(prepared=prepared, final=model.positions, cc_reference=0.9)


def test_a_model_with_hydrogens_is_compared_without_where_the_reference_has_none(tmp_path) -> None:
    without: Model = fragment(tmp_path / "model.pdb", residues=12)
    density_map = DensityMap.simulate(without.topology, without.positions, RESOLUTION, 1.0)
    built = prepare(without)
    model = SimpleNamespace(topology=built.topology, positions=np.asarray(built.positions))
    (note,) = _hydrogens_note(*fit_and_result(model, without, density_map))
    told = float(
        re.search(r"without them its CC is (\d\.\d{3}), which that of the reference, 0\.900", note)[1]
    )
    # But for the oxygen of the terminus, which was built as well.
    same = MapCorrelation(density_map, without.topology, RESOLUTION).cc_mask(without.positions)
    assert told == pytest.approx(same, abs=0.005)
    assert MapCorrelation(density_map, built.topology, RESOLUTION).cc_mask(built.positions) < told - 0.005
    # Both with, or both without, are compared as they are; and where there is no reference nothing is.
    for both in ((model, model), (without, without), (model, None)):
        assert _hydrogens_note(*fit_and_result(*both, density_map)) == []


def test_a_map_that_was_sharpened_for_the_end_is_told() -> None:
    def note(*stages: dict[str, float]) -> list[str]:
        return _sharpened_note(SimpleNamespace(stages=list(stages)))

    (told,) = note({"sharpened": 1.0}, {"sharpened": 1.5})
    assert "atoms 1.5 times as wide" in told and "sharpened" in told
    assert note({"sharpened": 1.0}) == note() == []


def test_a_list_that_restrains_nothing_in_dna_is_told(dna) -> None:

    def note(*names: str) -> list[str]:
        restraints = make_restraints(names, dna.topology, dna.positions)
        protocol = SimpleNamespace(stages=[SimpleNamespace(restraints=names)])
        return _restraint_note(SimpleNamespace(protocol=protocol, restraints=restraints, planarity=None))

    (sentence,) = note("ss", "ramachandran", "rotamers")
    assert (
        sentence == "Nothing is restrained: the model has nothing that ss, ramachandran, rotamers would hold."
    )
    assert note("ss", "base-pairs") == note() == []
