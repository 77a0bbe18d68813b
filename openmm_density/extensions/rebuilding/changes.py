"""What was rebuilt: the record in ``summary.json``, and sentences about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ...base.errors import as_argument
from ...base.page_blocks import Item, Items, Section, Spot
from ...base.wording import counted, listing

# So many are named in a line, those that gain most, and listed in a page.
_NAMED, _MOST_LISTED = 4, 40


@dataclass(frozen=True)
class RebuiltStretch:
    """Consecutive residues of a chain that were moved."""

    chain: str
    first: str  # `first`, `last`: their numbers, with insertion codes.
    last: str
    rows: list[int]  # Their places in the model that was given, from 0: several chains may have one name
    shifted_by: int  # By how many residues along the chain they were moved; 0 for a loop with another path
    gain: float  # What that is better by, in kJ/mol, with what the evidence is worth
    # By how much the evidence on the register rose, as a natural logarithm; 0 where only the energy was compared
    evidence: float = 0.0


@dataclass(frozen=True)
class FittedRotamer:
    """A side chain in another rotamer."""

    residue: str  # As in ``A ILE 9``
    row: int  # Its place in the model that was given, from 0
    chi_before: list[int]  # `chi_before`, `chi_after`: χ1, χ2 … in degrees.
    chi_after: list[int]


@dataclass(frozen=True)
class FlippedPeptide:
    """A peptide whose plane was turned over."""

    residue: str  # That before its bond, as in ``A ILE 9``
    row: int  # Its place in the model that was given, from 0
    gain: float  # What that is better by, in kJ/mol


@dataclass(frozen=True)
class FlippedSugar:
    """A sugar in the other pucker, or a base that was turned over."""

    residue: str  # As in ``A U 12``
    row: int  # Its place in the model that was given, from 0
    kind: str  # "pucker" or "base"
    before: int  # `before`, `after`: the phase of pseudorotation, or χ, in degrees
    after: int
    gain: float  # What that is better by, in kJ/mol


@dataclass
class Changes:
    """What a `Rebuilding` has done so far."""

    places_tried: int = 0  # In how many places shifted stretches were tried
    stretches: list[RebuiltStretch] = field(default_factory=list)  # Those that fit better as they were moved
    side_chains: list[FittedRotamer] = field(default_factory=list)
    places_left: int = 0  # In how many more places they would have been tried, had the fit had more steps
    peptides: list[FlippedPeptide] = field(default_factory=list)
    flips_left: int = 0  # The same of peptides and loops, sugars and bases
    sugars: list[FlippedSugar] = field(default_factory=list)

    @property
    def left_out(self) -> list[str]:
        """What there was too little room for: ``register``, ``peptides``."""
        left = {"register": self.places_left, "peptides": self.flips_left}
        return [name for name, count in left.items() if count]

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers, strings and lists."""
        return asdict(self)


def span(chain: str, first: str, last: str) -> str:
    """Name residues of a chain as in ``A 61-72``."""
    return f"{chain} {first if first == last else f'{first}-{last}'}".strip()


def rebuilt_in_words(rebuilding: Sequence[Mapping[str, Any]]) -> str | None:
    """Return a line on what was rebuilt.

    Returns as in ``A 61-72 shifted by +1 (310 kJ/mol), 2 peptides flipped, 14 side chains in other rotamers; 3
    searches, 95 s``; None if none was made.
    """
    if not rebuilding:
        return None
    kept = [each for each in rebuilding if not each["undone"]]
    stretches = sorted(
        (stretch for each in kept for stretch in each["stretches"]), key=lambda stretch: -stretch["gain"]
    )
    parts = []
    if stretches:
        parts.append(listing([_stretch_in_words(stretch) for stretch in stretches], _NAMED))
    flipped = {peptide["row"] for each in kept for peptide in each.get("peptides", ())}
    if flipped:
        parts.append("1 peptide flipped" if len(flipped) == 1 else f"{len(flipped)} peptides flipped")
    for kind, one, many in (
        ("pucker", "1 sugar in the other pucker", "sugars in the other pucker"),
        ("base", "1 base turned over", "bases turned over"),
    ):
        rows = {sugar["row"] for each in kept for sugar in each.get("sugars", ()) if sugar["kind"] == kind}
        if rows:
            parts.append(one if len(rows) == 1 else f"{len(rows)} {many}")
    refitted = {side_chain["row"] for each in kept for side_chain in each["side_chains"]}
    if refitted:
        one = len(refitted) == 1
        parts.append(
            "1 side chain in another rotamer" if one else f"{len(refitted)} side chains in other rotamers"
        )
    undone = len(rebuilding) - len(kept)
    if undone:
        parts.append(f"{undone} undone, as the model became unstable")
    count = "1 search" if len(rebuilding) == 1 else f"{len(rebuilding)} searches"
    seconds = sum(each["wall_seconds"] for each in rebuilding)
    return f"{', '.join(parts) or 'nothing'}; {count}, {seconds:.0f} s"


def left_out_in_words(rebuilding: Sequence[Mapping[str, Any]], steps: int) -> str | None:
    """Return a sentence on the searches that were left out for lack of steps, with arguments by `as_argument`, or None."""
    left = {name: sum(each.get(name, 0) for each in rebuilding) for name in ("places_left", "flips_left")}
    parts = [
        f"{counted(left[name], what)} {why}"
        for name, what, why in (
            ("places_left", "place", "where a stretch may be off by a residue"),
            ("flips_left", "loop, peptide or nucleotide", "that may be turned over"),
        )
        if left[name]
    ]
    if not parts:
        return None
    return (
        f"Searches were kept to about the time that the rest of the fit takes, with its {steps} steps, and left out what looked "
        f"least suspicious: {'; '.join(parts)}. {as_argument('search', 'full')} makes them all."
    )


def changed_residues(count: int, rebuilding: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return for each of so many residues whether it was rebuilt, and how."""
    rebuilt, turned, flipped = ([False] * count for _ in range(3))
    shifted_by = [0] * count
    for search in rebuilding:
        if search["undone"]:
            continue
        for stretch in search["stretches"]:
            for place in stretch["rows"]:
                rebuilt[place] = True
                shifted_by[place] += stretch["shifted_by"]
        for side_chain in search["side_chains"]:
            turned[side_chain["row"]] = True
        for peptide in search.get("peptides", ()):
            flipped[peptide["row"]] ^= True
    return {"rebuilt": rebuilt, "shifted_by": shifted_by, "turned": turned, "flipped": flipped}


def section_of(rebuilding: Sequence[Mapping[str, Any]]) -> list[Section]:
    """Return the section of a page on the stretches that were shifted, peptides and side chains that were turned."""
    in_words = rebuilt_in_words(rebuilding)
    if in_words is None:
        return []
    items = [Item(f"In all: {in_words}."), *_rebuilt(rebuilding)]
    return [Section("rebuilt", "What was rebuilt?", [Items("Before stages of the fit", items)])]


def _rebuilt(rebuilding: Sequence[Mapping[str, Any]]) -> Iterator[Item]:
    """Yield what was changed, each with a button."""
    # By what they are called: of each kind the residues, by their rows.
    others: dict[str, dict[int, str]] = {
        "Peptides flipped, behind": {},
        "Sugars in the other pucker, or bases turned over": {},
        "Side chains in other rotamers": {},
    }
    for search in rebuilding:
        if search["undone"]:
            continue
        for stretch in search["stretches"]:
            label = span(stretch["chain"], stretch["first"], stretch["last"])
            yield Item(
                f"{label} shifted by {stretch['shifted_by']:+d} before {search['stage']} "
                f"(gain {stretch['gain']:.0f} kJ/mol).",
                [Spot(f"Show {label}", stretch["rows"])],
            )
        kinds = search.get("peptides", ()), search.get("sugars", ()), search["side_chains"]
        for found, changed in zip(others.values(), kinds):
            found.update({each["row"]: each["residue"] for each in changed})
    for name, found in others.items():
        if found:
            yield Item(
                f"{name}:", [Spot(label, [row]) for row, label in sorted(found.items())[:_MOST_LISTED]]
            )


def _stretch_in_words(stretch: Mapping[str, Any]) -> str:
    where = span(stretch["chain"], stretch["first"], stretch["last"])
    by = stretch["shifted_by"]
    what = f"shifted by {by:+d}" if by else "built anew"
    return f"{where} {what} ({stretch['gain']:.0f} kJ/mol)"
