"""What is said of alternate conformers."""

from __future__ import annotations

from ...base.wording import listing
from ...fitting.doubt import Doubt, Place
from ...fitting.extension import Told
from ...fitting.fit_result import FitResult


def conformers_told(result: FitResult) -> Told:
    """Return ``conformers``, null where none was to be fitted, and what is to be known of them."""
    found = result.conformers
    # Where the model was kept as it was, a note of its own says what became of them.
    fitted = result.found if result.simulated is None else result.simulated.found
    fitted = fitted.get("conformers")
    untrue = [] if fitted is None or not len(fitted.copies) else [result.prepared.model.alternates.sentence()]
    return Told(
        {"conformers": None if found is None else found.as_dict()},
        notes=conformer_notes(result),
        untrue=untrue,
        doubts=conformer_doubts(result),
    )


def conformer_notes(result: FitResult) -> list[str]:
    """Return what became of alternate conformers, where they were to be fitted."""
    found, alternates = result.conformers, result.prepared.model.alternates
    if found is None:
        return []
    if not len(found.copies):
        return found.notes
    names = listing([group.name for group in found.copies.groups])
    others = len(alternates.conformers()) - sum(len(group.labels) for group in found.copies.groups)
    sentence = f"All conformers of {names} were fitted, each to its part of the density"
    if others:
        what = "1 alternate conformer moves" if others == 1 else f"{others} alternate conformers move"
        sentence += f"; {what} rigidly with the residue around"
    return [f"{sentence}.", *found.notes]


def conformer_doubts(result: FitResult) -> list[Doubt]:
    """Return doubts about alternate conformers that the map does not show, by how they are written."""
    missing = [] if result.conformers is None else result.conformers.not_shown
    doubts = []
    rigid = "they follow rigidly and keep the input's occupancies"
    for written, how in (
        (False, rigid if result.simulated is None else "they are written as the input has them"),
        (True, "they are written as fitted"),
    ):
        found = [each for each in missing if each.written == written]
        if found:
            said = (
                f"the map does not show alternate conformers {listing([str(each) for each in found], 10)}: {how}; "
                "look at each, and leave out what is not there."
            )
            doubts.append(Doubt("conformers", said, tuple(Place.of(each.residue) for each in found)))
    return doubts
