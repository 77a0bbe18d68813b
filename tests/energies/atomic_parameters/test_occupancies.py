"""Occupancies refined in maps whose own are known."""

from dataclasses import replace

import numpy as np
import pytest
from openmm import app

from openmm_density import InputError
from openmm_density.energies.atomic_parameters import OccupancyRefinement
from openmm_density.energies.atomic_parameters.occupancies import occupancy_groups
from openmm_density.maps.model_density import ModelDensity


def without(known, density_map, parts):
    """Take a part of the density of some atoms out of a map: of each, its atoms and that part."""
    data = density_map.data.copy()
    for atoms, part in parts:
        topology = app.Topology()
        residue = topology.addResidue("X", topology.addChain())
        every = list(known.model.topology.atoms())
        for index in atoms:
            topology.addAtom(every[index].name, every[index].element, residue)
        model = ModelDensity(topology, 3.0, b_factors=known.b_factors[atoms])
        start, density = model.on_grid(known.model.positions[atoms], density_map.matrix, density_map.origin)
        on_map, of_box = density_map.overlap(start, np.array(density.shape[::-1]))
        data[on_map] -= np.float32(part) * density[of_box]
    return replace(density_map, data=data)


def side_chain(known, residue):
    atoms = list(list(known.model.topology.residues())[residue].atoms())
    return [atom.index for atom in atoms if atom.name not in ("N", "CA", "C", "O", "CB")]


def test_known_occupancies_are_found(known):
    """At 3 Å within 0.1, with B factors that are not known either."""
    groups = {name: side_chain(known, number) for name, number in (("low", 8), ("middle", 36), ("full", 55))}
    truth = {"low": 0.3, "middle": 0.6, "full": 1.0}
    removed = [(groups[name], 1 - value) for name, value in truth.items() if value < 1]
    density_map = without(known, known.map(3.0, noise=0.1), removed)
    refined = OccupancyRefinement(known.model, density_map, 3.0, groups).refine()
    assert refined.values == pytest.approx(truth, abs=0.1)
    assert refined.cc > refined.cc_given
    assert all(0 < deviation < 0.15 for deviation in refined.deviations.values())
    assert refined.occupancies[groups["low"]] == pytest.approx(
        np.full(len(groups["low"]), refined.values["low"])
    )
    others = np.setdiff1d(np.arange(len(known.b_factors)), np.concatenate(list(groups.values())))
    assert (refined.occupancies[others] == 1).all()


def test_alternatives_share_what_there_is(known):
    """Two groups in whose places the map has 0.7 and 0.3 of the density."""
    first, second = side_chain(known, 8), side_chain(known, 36)
    density_map = without(known, known.map(3.0), [(first, 0.3), (second, 0.7)])
    refined = OccupancyRefinement(
        known.model, density_map, 3.0, [first, second], alternatives=[["0", "1"]]
    ).refine()
    assert sum(refined.values.values()) == pytest.approx(1)
    assert refined.values["0"] == pytest.approx(0.7, abs=0.1)


def test_what_is_not_in_the_map_displaces_no_solvent(known):
    """Else it would need density to make up for it: a seventh of that of its atoms."""
    absent = side_chain(known, 8)
    density_map = without(known, known.map(3.0, noise=0.1), [(absent, 1.0)])
    refined = OccupancyRefinement(known.model, density_map, 3.0, [absent]).refine()
    assert refined.values["0"] < 0.06
    assert refined.notes == [f"0 has no density of its own in the map (occupancy {refined.values['0']:.2f})."]


def test_kinds_of_groups(known):
    groups = occupancy_groups(known.model.topology, "side-chains")
    assert all("ALA" not in name and "GLY" not in name for name in groups)
    names = {atom.index: atom.name for atom in known.model.topology.atoms()}
    assert not {"CB", "CA", "N"} & {names[index] for members in groups.values() for index in members}
    with pytest.raises(InputError, match="must be some of ligands, waters, side-chains"):
        occupancy_groups(known.model.topology, "ligands,ions")
    with pytest.raises(InputError, match="the model has none of what it asks for"):
        occupancy_groups(known.model.topology, "waters")


@pytest.mark.parametrize(
    ("groups", "alternatives", "said"),
    [
        ([[0, 1], [1, 2]], (), "groups must not share atoms"),
        ([], (), "groups must hold at least one"),
        ([["CA"]], (), "groups must hold lists of atoms' indices"),
        ([[0], [1]], [[0, 5]], "alternatives must hold names or numbers of groups, found 5"),
        ([[0], [1]], [[0]], "alternatives must be sets of two or more groups"),
    ],
)
def test_what_cannot_be_used_is_refused(known, groups, alternatives, said):
    with pytest.raises(InputError) as raised:
        OccupancyRefinement(known.model, known.map(5.0), 5.0, groups, alternatives=alternatives)
    assert said in str(raised.value)
