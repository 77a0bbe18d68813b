"""What several models agree on, against displacements that are known."""

from dataclasses import replace

import gemmi
import numpy as np
import pytest

from openmm_density.base.errors import InputError
from openmm_density.extensions.batch.consensus import consensus_of, disagreeing, write_consensus

from ...fragments import fragment, rotated


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return fragment(tmp_path_factory.mktemp("models") / "model.pdb", residues=20)


def moved(model, residues, by):
    positions = model.positions.copy()
    for atom in model.topology.atoms():
        if atom.residue.index in residues:
            positions[atom.index] += by
    return replace(model, positions=positions)


def test_the_spread_is_the_distance_from_the_mean(model):
    by = np.array([0.0, 3.0, 4.0])
    models = [moved(model, (5, 6, 7), sign * by) for sign in (-1, 0, 1)]
    found = consensus_of(models, ["a", "b", "c"], [0.7, 0.9, 0.8])
    spreads = np.array([row["spread"] for row in found.residues])
    expected = np.zeros(20)
    expected[5:8] = np.sqrt(2 / 3 * 25)
    np.testing.assert_allclose(spreads, expected, atol=1e-3)
    assert [row["spread_backbone"] for row in found.residues] == pytest.approx(expected, abs=1e-3)
    assert disagreeing(found.residues) == [(5, 7, pytest.approx(4.082, abs=1e-3))]
    assert found.best == 1 and found.agreed == 17 / 20 and found.median_spread == 0
    assert "85% of 20 residues agree within 1 Å" in found.verdict
    assert (
        f"{found.residues[5]['residue']} to {found.residues[7]['residue'].split()[-1]} (4.1 Å)"
        in found.verdict
    )
    assert "This rests on 3 fits: so few cannot show how far others would spread" in found.verdict
    assert "The best is b, by its CC of 0.900 with the map that it was fitted into." in found.verdict


def test_models_are_compared_where_they_are(model):
    found = consensus_of([model, moved(model, range(20), (2.0, 0, 0))], ["a", "b"], [0.5, 0.6], is_free=True)
    assert found.rmsd[0, 1] == pytest.approx(2.0, abs=1e-4)
    assert {row["spread"] for row in found.residues} == {1.0}
    assert "a map that it was not fitted into" in found.verdict


def test_models_that_are_alike_are_clusters_the_largest_first(model):
    turned = rotated(model, 3, np.zeros(3))
    models = [
        moved(turned, range(20), (0.1, 0, 0)),
        model,
        moved(model, (3,), 0.2),
        turned,
        moved(model, (4,), 0.3),
    ]
    found = consensus_of(models, list("vwxyz"), [0.9, 0.5, 0.7, 0.8, 0.6])
    assert found.clusters == [[2, 4, 1], [0, 3]]
    assert "They end in 2 different places: 3 like x (0.700), 2 like v (0.900)" in found.verdict


def test_atoms_that_chemistry_does_not_tell_apart_may_have_either_name(model):
    names = {"PHE": (("CD1", "CD2"), ("CE1", "CE2")), "ARG": (("NH1", "NH2"),)}
    places = {(atom.residue.index, atom.name): atom.index for atom in model.topology.atoms()}
    positions = model.positions.copy()
    swapped = 0
    for residue in model.topology.residues():
        for pair in names.get(residue.name, ()):
            first, second = (places[residue.index, name] for name in pair)
            positions[[first, second]] = positions[[second, first]]
            swapped += 1
    assert swapped
    found = consensus_of([model, replace(model, positions=positions)], ["a", "b"], [0.5, 0.4])
    assert {row["spread"] for row in found.residues} == {0.0} and found.rmsd.max() < 1e-4


def test_what_one_model_alone_has_is_not_known(model, tmp_path):
    shorter = fragment(tmp_path / "shorter.pdb", residues=15)
    found = consensus_of([model, shorter], ["a", "b"], [0.6, 0.5])
    assert [row["models"] for row in found.residues] == [2] * 15 + [1] * 5
    assert found.residues[-1]["spread"] is None and found.residues[0]["spread"] == 0


def test_the_best_model_is_written_with_the_spread_in_the_b_column(model, tmp_path):
    models = [model, moved(model, (5,), (0, 4.0, 0))]
    found = consensus_of(models, ["a", "b"], [0.5, 0.6])
    write_consensus(tmp_path / "consensus.cif", models[found.best], found)
    written = gemmi.read_structure(str(tmp_path / "consensus.cif"))[0]
    values = [{round(atom.b_iso, 2) for atom in residue} for residue in written[0]]
    assert values == [{2.0} if number == 5 else {0.0} for number in range(20)]
    assert found.as_dict()["best"] == "b"


def test_models_of_different_molecules_are_refused(model):
    chain = next(model.topology.chains())
    assert chain.id == "A"
    with pytest.raises(InputError, match="a consensus needs at least two models, found 1"):
        consensus_of([model], ["a"], [0.5])
    other = fragment_with_chain(model, "X")
    with pytest.raises(
        InputError, match="the models have 0 residues in common by chain and number, of which 3 are needed"
    ):
        consensus_of([model, other], ["a", "b"], [0.5, 0.4])


def fragment_with_chain(model, name):
    import copy

    topology = copy.deepcopy(model.topology)
    next(topology.chains()).id = name
    return replace(model, topology=topology)
