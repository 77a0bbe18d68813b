"""The built-in protocols, made for the resolution of a map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...base.errors import InputError
from ...base.units import resolution_in_angstrom, takes_units
from ...restraints.names import DEFAULT_STAGE_RESTRAINTS
from .protocol import Protocol
from .protocol_file import read_protocol
from .stage import Stage, checked_restraints

PROTOCOLS = ("quick", "standard", "cascade", "gentle", "exchange")

COARSE = 4.5
"""From this resolution on, in Å, a map shows neither the hydrogen bonds of helices and strands, which are restrained longer, nor
which rotamer a side chain has."""
ALIKE = 3.5
"""From this resolution on, in Å, side chains are too alike in a map for the energy to tell which register is right."""
REGISTERED = 4.0
"""Up to this resolution, in Å, a map shows which residues a stretch has, by the density beside its backbone."""

_WITH_FOLD = (*DEFAULT_STAGE_RESTRAINTS, "ss")
_STAGGERED = "rotamers"
# Rungs of the ladder of blurred maps, in Å added to the map's resolution.
_RUNGS = (4.5, 3.0, 1.5)
_COLD, _ROOM, _HOT = 10.0, 300.0, 600.0
_FULL = (1.0, 1.0)
# Parts of the full strength that replicas have: neighbours among 8 of 100 residues then exchange in a tenth to a third of their
# attempts. With less than 0.05 models leave their density within 80 ps.
_LADDER, _WARM = (0.1, 0.25), 450.0


@takes_units("resolution")
def find_protocol(name: str, resolution: float) -> Protocol:
    """Return a built-in protocol by its name, or read the TOML file of that path.

    Parameters
    ----------
    name : str
        One of `PROTOCOLS`, or a path that ends in .toml.
    resolution : float
        Of the map in Å, from which ``cascade`` makes its ladder.
    """
    if str(name).endswith(".toml"):
        return read_protocol(name)
    resolution = resolution_in_angstrom(resolution)
    if name == "standard":
        stages = (*_approach(20000, resolution), *_refine(20000, resolution))
        return Protocol(stages, name="standard", b_factors="auto", conformers="auto")
    if name == "quick":
        stages = (*_approach(5000, resolution), *_refine(5000, resolution, heated=False))
        return Protocol(stages, name="quick", minimize_last=500)
    if name == "cascade":
        stages = (*_ladder(20000, resolution), *_refine(20000, resolution))
        return Protocol(stages, name="cascade", b_factors="auto", conformers="auto")
    if name == "exchange":
        refine = _refine(20000, resolution, heated=False, searched=True)
        stages = (*_approach(20000, resolution), *_exchanging(20000, resolution), *refine)
        return Protocol(stages, name="exchange", b_factors="auto", conformers="auto")
    if name == "gentle":
        return Protocol(_small_corrections(8000), name="gentle", b_factors="auto", conformers="auto")
    raise InputError(
        "must be a known protocol, or a file that ends in .toml",
        argument="protocol",
        found=f'"{name}"',
        remedy=f"use {', '.join(PROTOCOLS)}, or a file",
    )


def _approach(steps: int, resolution: float) -> tuple[Stage, ...]:
    """Down the ladder if the model starts far off, else at once into the density: a model warmed without it drifts away."""
    settle, draw = round(0.05 * steps), round(0.2 * steps)
    restraints = _near(resolution)
    return (
        *(replace(stage, start="far") for stage in _ladder(steps, resolution)),
        Stage("settle", settle, (0.1, 0.5), (_COLD, _ROOM), restraints=restraints, start="near"),
        Stage("draw", draw, (0.5, 0.5), restraints=restraints, start="near"),
    )


def _ladder(steps: int, resolution: float) -> tuple[Stage, ...]:
    """From a blurred map to the map itself, each rung from where the last ended (Singharoy et al. 2016)."""
    settle, *rungs = _shared(0.25 * steps, (0.2, *[0.8 / len(_RUNGS)] * len(_RUNGS)))
    coarsest = resolution + _RUNGS[0]
    return (
        Stage("settle", settle, (0.1, 0.1), (_COLD, _ROOM), coarsest, _WITH_FOLD),
        *(
            Stage(
                f"{resolution + more:g} Å",
                length,
                (0.1, 0.5) if more == _RUNGS[0] else (0.5, 0.5),
                resolution=resolution + more,
                restraints=_WITH_FOLD,
            )
            for more, length in zip(_RUNGS, rungs)
        ),
    )


def _refine(
    steps: int, resolution: float, heated: bool = True, searched: bool | None = None
) -> tuple[Stage, ...]:
    """Over the barriers between side chains and peptides by heat, then to full strength, and cold."""
    parts = (0.13, 0.13, 0.2, 0.16, 0.11, 0.27) if heated else (0.0, 0.0, 0.0, 0.3, 0.3, 0.4)
    heat, hot, cool, tighten, hold, anneal = _shared(0.75 * steps, parts)
    shown = resolution < COARSE
    register = (heated if searched is None else searched) and resolution <= REGISTERED
    stages = []
    if heated:
        stages += [
            Stage("heat", heat, (0.5, 0.5), (_ROOM, _HOT), register=register),
            Stage("hot", hot, (0.5, 0.5), (_HOT, _HOT)),
            Stage("cool", cool, (0.5, 0.5), (_HOT, _ROOM)),
        ]
    stages += [
        Stage("tighten", tighten, (0.5, 1.0), register=register, rotamers=shown),
        Stage("hold", hold, register=register, until_converged=True),
        Stage("anneal", anneal, temperature=(_ROOM, _COLD), rotamers=shown),
    ]
    last = len(stages) - 1
    # Until then side chains may change their rotamers.
    return tuple(
        replace(stage, restraints=checked_restraints((*stage.restraints, _STAGGERED)))
        if number == last
        else stage
        for number, each in enumerate(stages)
        for stage in _sided(each, resolution)
    )


def _exchanging(steps: int, resolution: float) -> tuple[Stage, ...]:
    """Replicas from a weak density, where chains find another way, to a stronger one, which keeps what fits."""
    register, shown = resolution <= REGISTERED, resolution < COARSE
    kelvin = _WARM if shown else _ROOM
    stage = Stage("exchange", steps, _LADDER, (kelvin, kelvin), register=register, exchange=True)
    return _sided(stage, resolution)


def _shared(steps: float, parts: Sequence[float]) -> list[int]:
    """Share steps out."""
    ends = [round(steps * sum(parts[: number + 1])) for number in range(len(parts))]
    return [end - begin for begin, end in zip([0, *ends], ends)]


def _sided(stage: Stage, resolution: float) -> tuple[Stage, ...]:
    """Return a stage with what a map of this resolution leaves to restraints, for near and far starts where these differ."""
    if resolution < COARSE:
        return (stage,)
    # Where a domain moved, the hinge has other torsions than at the start.
    arrived = stage.strength == _FULL
    far = replace(stage, restraints=DEFAULT_STAGE_RESTRAINTS if arrived else _WITH_FOLD, start="far")
    if max(stage.temperature) > _ROOM:  # what heat would mend does not show either
        return (far,)
    return replace(stage, restraints=_near(resolution), start="near"), far


def _near(resolution: float) -> tuple[str, ...]:
    # A coarse map does not show what is wrong locally in a model that lies in it: its near distances say more.
    return _WITH_FOLD if resolution < COARSE else (*_WITH_FOLD, "distance")


def _small_corrections(steps: int) -> tuple[Stage, ...]:
    """Cool, at half of the strength, and with all restraints throughout: for a model that is right except for details."""
    settle, draw, hold = round(0.05 * steps), round(0.2 * steps), round(0.35 * steps)
    cool, half = (150.0, 150.0), (0.5, 0.5)
    restraints = checked_restraints((*_WITH_FOLD, _STAGGERED))
    return (
        Stage("settle", settle, (0.1, 0.1), (_COLD, 150.0), restraints=restraints),
        Stage("draw", draw, (0.1, 0.5), cool, restraints=restraints),
        Stage("hold", hold, half, cool, restraints=restraints, until_converged=True),
        Stage("anneal", steps - settle - draw - hold, half, (150.0, _COLD), restraints=restraints),
    )
