"""The restraints by the names that protocols and the command line know: each is a module here and an entry in `RESTRAINTS`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import mdtraj
from openmm import app

from ..base.errors import InputError
from ..base.units import takes_units
from .base_pairs import BasePairRestraint, BasePlaneRestraint
from .chirality import ChiralityRestraint
from .distance import DistanceRestraint
from .elastic_network import ElasticNetworkRestraint
from .ideal_geometry import IdealGeometryRestraint
from .peptide import PeptideRestraint
from .planarity import PlanarityRestraint
from .positional import PositionalRestraint
from .predicted_torsions import PredictedTorsionRestraint
from .ramachandran import RamachandranRestraint
from .restraint import Restraint, Violation
from .rotamers import RotamerRestraint
from .secondary_structure import HydrogenBondRestraint, SecondaryStructureRestraint
from .sugar_puckers import GlycosidicRestraint, SugarPuckerRestraint
from .suites import SuiteRestraint
from .symmetry import SymmetryRestraint
from .water import WaterRestraint

RESTRAINTS: dict[str, tuple[type[Restraint], ...]] = {
    "planarity": (PlanarityRestraint,),
    "ss": (SecondaryStructureRestraint, HydrogenBondRestraint),
    "base-pairs": (BasePairRestraint, BasePlaneRestraint),
    "sugar-puckers": (SugarPuckerRestraint, GlycosidicRestraint),
    "suites": (SuiteRestraint,),
    "chirality": (ChiralityRestraint,),
    "cis": (PeptideRestraint,),
    "ramachandran": (RamachandranRestraint,),
    "rotamers": (RotamerRestraint,),
    "elastic": (ElasticNetworkRestraint,),
    "distance": (DistanceRestraint,),
    "torsion": (PredictedTorsionRestraint,),
    "position": (PositionalRestraint,),
    "symmetry": (SymmetryRestraint,),
    "water": (WaterRestraint,),
    "ideal-geometry": (IdealGeometryRestraint,),
}
"""The classes behind each name, in the order in which protocols list the names."""

DEFAULT_RESTRAINTS = ("ss", "base-pairs", "sugar-puckers", "chirality", "cis")
"""What ``default`` stands for in the names of `make_restraints`. Protocols name what each of their stages holds."""


def restraint_names(names: str | Iterable[str]) -> tuple[str, ...]:
    """Return the names of restraints that a user asks for, each once.

    Parameters
    ----------
    names : str or iterable of str
        Names of `RESTRAINTS`, separated by commas in one str; ``default``; ``none`` for nothing.

    Raises
    ------
    InputError
        A name is not known, or ``none`` is given beside another.
    """
    words = names.split(",") if isinstance(names, str) else list(names)
    words = [word.strip() for word in words if word.strip()]
    if words == ["none"]:
        return ()
    chosen: list[str] = []
    for word in words:
        if word == "default":
            chosen += DEFAULT_RESTRAINTS
        elif word in RESTRAINTS:
            chosen.append(word)
        elif word == "none":
            raise InputError(
                'must be known restraints, or "none"',
                argument="names",
                found='"none" beside others',
                remedy='give either "none" or names',
            )
        else:
            raise InputError(
                "must be known restraints",
                argument="names",
                found=f'"{word}"',
                remedy=f'use {", ".join(RESTRAINTS)}, "default" ({", ".join(DEFAULT_RESTRAINTS)}) or "none"',
            )
    return tuple(dict.fromkeys(chosen))


@takes_units("positions")
def make_restraints(
    names: str | Iterable[str],
    topology: app.Topology | mdtraj.Topology,
    positions: Any,
    *,
    force_group: int = 0,
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Restraint]:
    """Build restraints by name.

    Parameters
    ----------
    names : str or iterable of str
        As in ``"ss,chirality,cis"``: names of `RESTRAINTS`, ``default`` or ``none``.
    topology : openmm.app.Topology or mdtraj.Topology
    positions : Quantity or array_like, shape (N, 3)
        Å where plain: the start, which most restraints take their targets from.
    force_group : int
        Of all of them.
    options : mapping, optional
        More arguments by name, as in ``{"distance": {"reference": model}}``. Those of ``ss`` go to both of its restraints.

    Returns
    -------
    list of Restraint
        In the order of the names; those that find nothing to hold are among them.

    Raises
    ------
    InputError
        A name is not known, options are for one that is not made, or a restraint cannot be made.
    """
    chosen = restraint_names(names)
    options = options or {}
    unused = [name for name in options if name not in chosen]
    if unused:
        raise InputError(
            "must be for restraints that are made",
            argument="options",
            found=f'options for "{unused[0]}", which is not among {", ".join(chosen) or "none"}',
            remedy="leave them out, or add the restraint to the names",
        )
    return [
        kind(topology, positions, force_group=force_group, **options.get(name, {}))
        for name in chosen
        for kind in RESTRAINTS[name]
    ]


@takes_units("positions")
def find_violations(restraints: Iterable[Restraint], positions: Any) -> dict[str, list[Violation]]:
    """List the violations of restraints, by their names, the worst first.

    Parameters
    ----------
    restraints : iterable of Restraint
    positions : Quantity or array_like, shape (N, 3)
        Å where plain.

    Returns
    -------
    dict of str to list of Violation
        With an empty list for a restraint that is satisfied.
    """
    result: dict[str, list[Violation]] = {}
    for restraint in restraints:
        result.setdefault(restraint.name, []).extend(restraint.violations(positions))
    return result
