"""What users are told of what was rebuilt."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from openmm import app

from openmm_density.extensions.rebuilding.changes import (
    Changes,
    FittedRotamer,
    FlippedPeptide,
    FlippedSugar,
    RebuiltStretch,
    rebuilt_in_words,
)
from openmm_density.extensions.rebuilding.extension import Searched


def search(
    *stretches: RebuiltStretch,
    turned: tuple[int, ...] = (),
    flipped: tuple[int, ...] = (),
    sugars: tuple[tuple[int, str], ...] = (),
    **changed: Any,
) -> dict[str, Any]:
    side_chains = [FittedRotamer(f"ILE {row}", row, [-60], [180]) for row in turned]
    peptides = [FlippedPeptide(f"ILE {row}", row, 60.0) for row in flipped]
    sugars = [FlippedSugar(f"A U {row}", row, kind, 20, 160, 60.0) for row, kind in sugars]
    changes = Changes(3, list(stretches), side_chains, peptides=peptides, sugars=sugars)
    return {
        "stage": "heat",
        "step": 10,
        **changes.as_dict(),
        "undone": False,
        "wall_seconds": 30.4,
        **changed,
    }


def test_a_line_says_it_all() -> None:
    assert rebuilt_in_words([]) is None
    assert rebuilt_in_words([search()]) == "nothing; 1 search, 30 s"
    shifted = RebuiltStretch("A", "61", "72", list(range(60, 72)), 1, 310.4)
    loop = RebuiltStretch("", "80", "80", [79], 0, 70.0)
    told = rebuilt_in_words([search(loop, shifted, turned=(9,)), search(turned=(9, 3))])
    assert told == (
        "A 61-72 shifted by +1 (310 kJ/mol), 80 built anew (70 kJ/mol), 2 side chains in other rotamers; 2 searches, 61 s"
    )
    told = rebuilt_in_words([search(sugars=((3, "pucker"), (4, "base"), (5, "base")))])
    assert told == "1 sugar in the other pucker, 2 bases turned over; 1 search, 30 s"
    many = rebuilt_in_words([search(*[shifted] * 9)])
    assert many.count("shifted") == 4 and "and 5 more" in many
    undone = rebuilt_in_words([search(turned=(9,)), search(shifted, undone=True)])
    assert (
        undone == "1 side chain in another rotamer, 1 undone, as the model became unstable; 2 searches, 61 s"
    )


def test_an_extension_tells_of_it() -> None:
    kept = search(RebuiltStretch("A", "4", "6", [3, 4, 5], 1, 61.5), turned=(8,), flipped=(2,))
    dropped = search(RebuiltStretch("A", "4", "6", [3, 4, 5], 1, 61.5), undone=True) | {
        "flips_left": 1,
        "places_left": 2,
    }
    extension, topology = Searched(), app.Topology()
    extension.name = "rebuilding"
    for number in range(10):
        topology.addResidue("ALA", topology.addChain(), str(number))
    prepared = SimpleNamespace(model=SimpleNamespace(topology=topology))
    result = SimpleNamespace(
        simulated=None, steps=40, prepared=prepared, found={"rebuilding": [kept, dropped]}
    )
    assert np.flatnonzero(extension.residues(result)["rebuilt"]).tolist() == [3, 4, 5]
    assert not any(extension.residues(SimpleNamespace(**vars(result) | {"simulated": True}))["rebuilt"])
    told = extension.told(SimpleNamespace(protocol=SimpleNamespace(search="auto")), result)
    assert told.figures == {"search": "auto", "rebuilding": [kept, dropped]}
    assert "1 loop, peptide or nucleotide that may be turned over" in told.notes[0]
    assert "2 places where a stretch may be off by a residue" in told.notes[0]
    (section,) = extension.sections(told.figures)
    (rebuilt,) = section.blocks
    assert [[spot.rows for spot in item.spots] for item in rebuilt.items] == [[], [[3, 4, 5]], [[2]], [[8]]]
    assert "A 4-6 shifted by +1 before heat" in rebuilt.items[1].text
    for simulated, begins in ((None, "rebuilt: A 4-6 "), ({"cc": 0.5}, "rebuilt in after.*: A 4-6 ")):
        (line,) = extension.lines(told.figures | {"simulated": simulated})
        assert line.startswith(begins)
    nothing = {"rebuilding": []}
    assert extension.sections(nothing) == [] and extension.lines(nothing) == ()
