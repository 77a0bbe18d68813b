"""What the sections of a page are put together from; their texts are plain, and the page shows them as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    kind: ClassVar[str] = "text"
    text: str


@dataclass(frozen=True)
class Spot:
    """A place in the model that a button shows."""

    label: str  # On the button
    # Its residues, by their places among those of the page; none for the whole model
    rows: Sequence[int] = ()


@dataclass(frozen=True)
class Item:
    """A sentence, with where in the model it is about."""

    text: str
    spots: Sequence[Spot] = ()
    section: str | None = None  # The key of a plot to look at instead


@dataclass(frozen=True)
class Items:
    """A list of sentences."""

    kind: ClassVar[str] = "items"
    heading: str
    items: Sequence[Item]
    are_doubts: bool = False  # Whether they speak against the model


@dataclass(frozen=True)
class Table:
    """A table."""

    kind: ClassVar[str] = "table"
    caption: str
    headings: Sequence[str]  # Of the columns behind the first
    rows: Sequence[tuple[str, Sequence[str]]]  # What a row is about, and its cells
    about: str = ""  # The heading of the first column
    links: Sequence[str | None] = ()  # Pages beside this one that rows lead to
    is_sortable: bool = False  # Whether a click on a heading sorts the rows


@dataclass(frozen=True)
class Plot:
    """A figure that plotly draws."""

    kind: ClassVar[str] = "plot"
    key: str  # In the page's address
    title: str  # `title`, `description`: what it shows, for those who see it and for those who do not.
    description: str
    figure: dict[str, Any] | None  # ``data`` and ``layout``; the plot is left out where there is none


@dataclass(frozen=True)
class Facts:
    """Names and values."""

    kind: ClassVar[str] = "facts"
    pairs: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Command:
    """Something to type or to copy, with a button for it."""

    kind: ClassVar[str] = "command"
    text: str


@dataclass(frozen=True)
class Residues:
    """The table of all residues, which the page sorts and searches."""

    kind: ClassVar[str] = "residues"
    caption: str


Block = Text | Items | Table | Plot | Facts | Command | Residues


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    key: str  # In its address
    heading: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Card:
    """A figure that matters, with what it was before."""

    name: str
    value: str
    detail: str = ""


@dataclass(frozen=True)
class Page:
    """A page."""

    title: str
    subtitle: str
    verdict: str  # The first sentence to read
    is_doubtful: bool  # Whether it is to be read with care
    cards: Sequence[Card]
    sections: Sequence[Section]
    # What is drawn: ``residues`` (`openmm_density.report.shown_model.residue_values`), ``structures``
    # (`openmm_density.report.structures.drawn_models`), ``surfaces`` or None
    data: dict[str, Any] = field(repr=False)
    picture: bytes | None = field(default=None, repr=False)  # A PNG for browsers that draw nothing in 3-D
