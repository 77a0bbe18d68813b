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
    """A place in the model that a button shows.

    Attributes
    ----------
    label : str
        On the button.
    rows : sequence of int
        Its residues, by their places among those of the page; none for the whole model.
    """

    label: str
    rows: Sequence[int] = ()


@dataclass(frozen=True)
class Item:
    """A sentence, with where in the model it is about.

    Attributes
    ----------
    text : str
    spots : sequence of Spot
    section : str, optional
        The key of a plot to look at instead.
    """

    text: str
    spots: Sequence[Spot] = ()
    section: str | None = None


@dataclass(frozen=True)
class Items:
    """A list of sentences.

    Attributes
    ----------
    heading : str
    items : sequence of Item
    are_doubts : bool
        Whether they speak against the model.
    """

    kind: ClassVar[str] = "items"
    heading: str
    items: Sequence[Item]
    are_doubts: bool = False


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes
    ----------
    caption : str
    headings : sequence of str
        Of the columns behind the first.
    rows : sequence of (str, sequence of str)
        What a row is about, and its cells.
    about : str
        The heading of the first column.
    links : sequence of str or None
        Pages beside this one that rows lead to.
    is_sortable : bool
        Whether a click on a heading sorts the rows.
    """

    kind: ClassVar[str] = "table"
    caption: str
    headings: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str]]]
    about: str = ""
    links: Sequence[str | None] = ()
    is_sortable: bool = False


@dataclass(frozen=True)
class Plot:
    """A figure that plotly draws.

    Attributes
    ----------
    key : str
        In the page's address.
    title, description : str
        What it shows, for those who see it and for those who do not.
    figure : dict, optional
        ``data`` and ``layout``; the plot is left out where there is none.
    """

    kind: ClassVar[str] = "plot"
    key: str
    title: str
    description: str
    figure: dict[str, Any] | None


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
    """A part of the page.

    Attributes
    ----------
    key : str
        In its address.
    heading : str
    blocks : sequence of Block
    """

    key: str
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
    """A page.

    Attributes
    ----------
    title, subtitle : str
    verdict : str
        The first sentence to read.
    is_doubtful : bool
        Whether it is to be read with care.
    cards : sequence of Card
    sections : sequence of Section
    data : dict
        What is drawn: ``residues`` (`openmm_density.report.residue_values.residue_values`), ``structures``
        (`openmm_density.report.structures.drawn_models`), ``surfaces`` or None.
    picture : bytes, optional
        A PNG for browsers that draw nothing in 3-D.
    """

    title: str
    subtitle: str
    verdict: str
    is_doubtful: bool
    cards: Sequence[Card]
    sections: Sequence[Section]
    data: dict[str, Any] = field(repr=False)
    picture: bytes | None = field(default=None, repr=False)
