"""Residues that a coarse map does not show where a model has them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from openmm import app
from scipy.spatial.transform import Rotation

from openmm_density import DensityFit, DensityMap
from openmm_density.fitting import FlexibleFit
from openmm_density.fitting.protocols import NEAR_CC, Protocol, Stage
from openmm_density.fitting.unseen import unseen_residues, without_unseen_atoms
from openmm_density.models import Model, prepare, read_model
from openmm_density.validation.correlation import MapCorrelation

from ..conftest import PROJECT
from ..fragments import fragment
from ..small_models import ADK_CLOSED, written

RESIDUES, RESOLUTION, SEEN = 32, 5.0, 22


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return fragment(tmp_path_factory.mktemp("unseen") / "model.pdb", residues=RESIDUES)


@pytest.fixture(scope="module")
def density_map(model: Model) -> DensityMap:
    """Return a map of the first residues alone."""
    part = app.Modeller(model.topology, model.positions)
    shown = [atom for atom in model.topology.atoms() if atom.residue.index < SEEN]
    places = model.positions[[atom.index for atom in shown]]
    part.delete([atom for atom in model.topology.atoms() if atom.residue.index >= SEEN])
    return DensityMap.simulate(part.topology, places, RESOLUTION, 1.5, noise=0.05, seed=4, margin=25.0)


def test_what_a_map_does_not_show_is_found(model: Model, density_map: DensityMap) -> None:
    correlations = MapCorrelation(density_map, model.topology, RESOLUTION).residue_correlations(
        model.positions
    )
    unseen = unseen_residues(model.topology, correlations)
    # Averages over neighbours blur where it begins.
    assert set(range(SEEN + 4, RESIDUES)) <= set(unseen.tolist()) <= set(range(SEEN - 2, RESIDUES))
    assert len(unseen_residues(model.topology, np.full(RESIDUES, 0.7))) == 0
    assert len(unseen_residues(app.Topology(), np.zeros(0))) == 0


def test_it_is_held_in_a_coarse_map_that_the_model_lies_in(model: Model, density_map: DensityMap) -> None:
    def fit(**options: object) -> FlexibleFit:
        protocol = Protocol((Stage("hold", 20),), strength=20.0, minimize_first=10, minimize_last=10)
        chosen = {"resolution": RESOLUTION, "threads": 1, "place": "off", **options}
        return FlexibleFit(model, density_map, chosen.pop("resolution"), protocol, **chosen)

    held = fit()
    (note,) = held.notes
    assert note.startswith("Not seen in the map") and str(RESIDUES) in note
    names = [force.getName() for force in held.system.getForces()]
    assert "PositionalRestraint" in names
    result = held.run()
    backbone = [
        a.index for a in held.prepared.topology.atoms() if a.residue.index >= SEEN + 4 and a.name == "CA"
    ]
    assert np.linalg.norm((result.final - held.prepared.positions)[backbone], axis=1).max() < 1.0
    assert fit(resolution=4.0).notes == []
    away = replace(model, positions=model.positions + 40.0)
    far = FlexibleFit(
        away, density_map, RESOLUTION, Protocol((Stage("hold", 20),), strength=20.0), threads=1, place="off"
    )
    assert far.notes == []
    without = Protocol((Stage("hold", 20, restraints=()),), strength=20.0)
    assert FlexibleFit(model, density_map, RESOLUTION, without, threads=1, place="off").notes == []


def test_a_domain_that_is_elsewhere_is_free_to_go_there() -> None:
    """Adenylate kinase, open, on the core of the closed one: two domains lie outside of their density."""
    models = [read_model(PROJECT / "examples" / "data" / f"adk_{state}.pdb") for state in ("open", "closed")]
    core = np.r_[0:29, 60:120, 165:214]
    carbons = [np.array([a.index for a in m.topology.atoms() if a.name == "CA"])[core] for m in models]
    moving, fixed = (m.positions[index] for m, index in zip(models, carbons))
    rotation, shift = Rotation.align_vectors(fixed - fixed.mean(0), moving - moving.mean(0))[0], fixed.mean(0)
    placed = rotation.apply(models[0].positions - moving.mean(0)) + shift
    target = DensityMap.simulate(models[1].topology, models[1].positions, 6.0, 1.5, margin=20.0)
    found = MapCorrelation(target, models[0].topology, 6.0).evaluate(placed)
    assert found.cc_mask > NEAR_CC and (found.residues < 0.2).sum() > 40
    assert len(unseen_residues(models[0].topology, found.residues)) == 0


@pytest.mark.parametrize("shown", [False, True])
def test_phosphates_that_were_built_are_pulled_where_a_map_shows_some(
    small_data: Path, tmp_path: Path, shown: bool
) -> None:
    """As of a model of 1NKW without phosphorus: its CC fell in a map that has none either."""
    whole = read_model(small_data / "zoo" / "1bna_duplex.pdb")
    lines = [x for x in (small_data / "zoo" / "1bna_duplex.pdb").read_text().splitlines() if x[:4] == "ATOM"]
    bare = read_model(
        written(tmp_path / "bare.pdb", [x for x in lines if x[12:16].strip() not in ("P", "OP1", "OP2")])
    )
    seen = whole if shown else bare
    density_map = DensityMap.simulate(seen.topology, seen.positions, 3.5, 1.0)
    prepared = prepare(bare)
    density = DensityFit(density_map, prepared.topology, 3.5, positions=prepared.positions)
    fitted, told = without_unseen_atoms(density, prepared)
    built = set(np.flatnonzero(prepared.input_index < 0).tolist())
    assert bool(built & set(fitted.atoms.tolist())) == shown
    assert len(told) == (not shown)


def test_side_chains_that_were_built_in_other_rotamers_are_pulled(tmp_path: Path) -> None:
    lines = [x for x in ADK_CLOSED.read_text().splitlines() if x[:4] == "ATOM" and int(x[22:26]) < 40]
    whole = read_model(written(tmp_path / "whole.pdb", lines))
    bare = [x for x in lines if x[12:16].strip() in ("N", "CA", "C", "O", "CB")]
    prepared = prepare(read_model(written(tmp_path / "bare.pdb", bare)))
    density_map = DensityMap.simulate(whole.topology, whole.positions, 3.0, 1.0)
    density = DensityFit(density_map, prepared.topology, 3.0, positions=prepared.positions)
    assert without_unseen_atoms(density, prepared) == (density, [])
