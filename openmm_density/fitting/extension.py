"""The one hook of a fit: `FitExtension`; `installed_extensions` finds and calls those that are installed.

An extension is a class with what it adds to a fit, and nothing that it does not need: each method does nothing by default, is
called with objects of the core, and returns plain data, which the core puts in place. In the order of a fit:

=================  ====================================================================================================
``options``        declared once: the command line (``fit``, ``batch``), the keywords of `FlexibleFit`, ``command.json``
                   and the reference of commands have them from here, and ``fit.asked`` has their values
``files``          what it writes into the folder of a fit, so that no other fit overwrites it unasked
``protocol``       the protocol as the options ask for it; what cannot be is refused here, before slow imports
``forces``         what it adds to the Systems of the fit
``in_fit``         what acts in one fit, from here to ``at_end``: the extension, or an object of the same hook that keeps what it
                   needs for this fit
``running``        what goes on while stages run; ``rebuilds_before`` tells of which the display says that they take longer
``answers``        the keys of protocol files that it answers: a file that asks for one that nobody answers is refused
``driver``         what steps a stage in place of the dynamics of one model
``before_stage``   called when a stage begins and
``after_stage``    when it ends: what it notes by its name in ``RunState.found`` is saved, rolled back and resumed with the state
``at_end``         called with the minimised model in the Context of the last stage, which it may still move
``after``          called when the fit is complete: what it finds is kept by its name in ``FitResult.found``, which begins
                   as what was noted in the state
``write``          its files
``residues``       its columns of the residues of ``summary.json``, which pictures show as well
``told``           its figures of ``summary.json`` with their units, notes and doubts
``complete``       called with the whole summary, which it may add to, before that is written: files that are made of it
``sections``       its sections of ``report.html``, from ``summary.json`` alone: ``report`` makes them again
``blocks``         the same of the section "Can I trust it?"
``lines``          what the command prints of it
=================  ====================================================================================================

It is registered by an entry point of the group ``openmm_density.extensions`` of any installed package; those of this one are in
``openmm_density/extensions/entry_points.txt``. Their modules are imported where options are read, so what takes time is imported
within the methods. No module of the core names an extension; without its entry point a fit runs as if it had never been there.
What a command does by one function of an extension, it finds by an entry point of the group ``openmm_density.functions``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import openmm

    from ..base.page_blocks import Block, Section
    from ..models.preparation import Prepared
    from .agreement import ModelAgreement
    from .checkpoints import RunFolder
    from .doubt import Doubt
    from .engine import FitParts
    from .fit_result import FitResult, Progress
    from .flexible_fit import FlexibleFit
    from .interrupts import Stop
    from .protocols import Protocol
    from .run_state import RunState
    from .stage_context import StageContext
    from .stage_run import StageDriver, Watch


@dataclass(frozen=True)
class Option:
    """An option of a fit. Several extensions may declare the same one: it is there once, and its help says what each does.

    Attributes
    ----------
    name : str
        As Python has it, ``b_factors`` for ``--b-factors``.
    help : str
        What it does, for the command line.
    kind : callable
        Returns the value of a text: ``int``, ``float``, ``str``, or a function that raises `argparse.ArgumentTypeError`; of
        ``bool`` the option has no text.
    metavar : str, optional
        What stands for its value in the help.
    choices : tuple of str
        All values, where only some are allowed.
    default : object, optional
        False of ``bool``, and an empty list of `many`.
    group : str
        The heading in the help.
    not_with : tuple of str
        Options of the core with which it cannot be used: "symmetry", "amplitudes".
    many : bool
        Whether it may be given several times: its value is a list.
    """

    name: str
    help: str
    kind: Callable[[str], Any] = str
    metavar: str | None = None
    choices: tuple[str, ...] | None = None
    default: Any = None
    group: str = "the protocol"
    not_with: tuple[str, ...] = ()
    many: bool = False

    def __post_init__(self) -> None:
        if self.default is None:
            object.__setattr__(self, "default", [] if self.many else False if self.kind is bool else None)


@dataclass(frozen=True)
class Told:
    """What an extension says of a fit that has ended.

    Attributes
    ----------
    figures : mapping
        Put into ``summary.json``: plain numbers, strings, lists and dicts by their names, also where there are none (None).
    notes : sequence of str
        Sentences on what was done.
    untrue : sequence of str
        Sentences on the preparation of the model that the fit has made untrue.
    doubts : sequence of Doubt
    units : mapping of str to str
        Of the figures, and of numbers within them, by their names.
    """

    figures: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()
    untrue: Sequence[str] = ()
    doubts: Sequence[Doubt] = ()
    units: Mapping[str, str] = field(default_factory=dict)


class FitExtension:
    """What is added to a fit; see the module for when each is called."""

    name = ""
    options: tuple[Option, ...] = ()
    files: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()

    def protocol(self, protocol: Protocol, asked: Mapping[str, Any]) -> Protocol:
        """Return the protocol with what the options, by name, ask for.

        Raises
        ------
        InputError
            If they ask for what cannot be.
        """
        return protocol

    def forces(self, prepared: Prepared, asked: Mapping[str, Any]) -> Sequence[openmm.Force]:
        """Return forces, on all particles of the prepared model, that act beside force field and restraints."""
        return ()

    def in_fit(self, parts: FitParts) -> FitExtension:
        """Return what acts in a fit."""
        return self

    def running(self, state: RunState) -> AbstractContextManager[None]:
        """Return what goes on while the stages run, from a state on."""
        return nullcontext()

    def rebuilds_before(self, number: int) -> bool:
        """Whether what it does before a stage, by its number from 0, takes as long as a stage."""
        return False

    def driver(
        self, parts: FitParts, running: StageContext, state: RunState, careful: bool
    ) -> StageDriver | None:
        """Return what steps a stage from a state on, careful after it blew up; None where the dynamics of one model do."""
        return None

    def before_stage(
        self, running: StageContext, state: RunState, asked: Mapping[str, Any], watch: Watch
    ) -> None:
        """Do what comes before the first step of a stage in its Context; `watch` is told of it, and says whether to stop."""

    def after_stage(
        self, running: StageContext, state: RunState, asked: Mapping[str, Any], stop: Stop
    ) -> None:
        """Do what comes behind the last step of a stage, before the state is saved."""

    def at_end(
        self, parts: FitParts, running: StageContext, state: RunState, stop: Stop
    ) -> Mapping[str, Any]:
        """Return what is found of the minimised model, by name."""
        return {}

    def after(
        self, fit: FlexibleFit, result: FitResult, folder: RunFolder | None, stop: Stop, progress: Progress
    ) -> FitResult:
        """Return the result of a fit that is complete with what is found yet: `FitResult.with_found`."""
        return result

    def write(self, folder: Path, fit: FlexibleFit, result: FitResult) -> None:
        """Write `files` into the folder of a fit, and remove those of an earlier fit that there are none of now."""

    def residues(self, result: FitResult) -> Mapping[str, Sequence[Any]]:
        """Return columns of the summary's residues, those of the input: by their names, a value of each."""
        return {}

    def told(self, fit: FlexibleFit, result: FitResult) -> Told:
        """Return what is said of the fit."""
        return Told()

    def complete(
        self,
        folder: Path,
        fit: FlexibleFit,
        result: FitResult,
        agreement: ModelAgreement,
        summary: dict[str, Any],
        crystal: Callable[[], Any] | None,
    ) -> None:
        """Write files that are made of the whole summary, and add to it; `crystal` returns what measured amplitudes say."""

    def sections(self, summary: Mapping[str, Any]) -> Sequence[Section]:
        """Return the sections of the page of a fit with this summary."""
        return ()

    def blocks(self, summary: Mapping[str, Any], residues: Sequence[Mapping[str, Any]]) -> Sequence[Block]:
        """Return what stands in the section "Can I trust it?" of the page of a fit; the page has these values of its residues."""
        return ()

    def lines(self, summary: Mapping[str, Any]) -> Sequence[str]:
        """Return what the command prints in the end."""
        return ()
