"""The stages of an ensemble: how replicas part, settle where the map has them, and come to rest."""

from __future__ import annotations

from ...fitting.protocols import Stage
from ...restraints.names import DEFAULT_STAGE_RESTRAINTS

RESTRAINTS = (*(name for name in DEFAULT_STAGE_RESTRAINTS if name != "water"), "ss")
"""What holds in all stages: chemistry and secondary structure, nothing that keeps a conformation."""

# In Å added to the map's resolution: far apart, conformations attract each other only where they are blurred.
_RUNGS = (4.5, 3.0, 1.5)
_ROOM, _WARM, _COLD = 300.0, 400.0, 10.0


def parting_stages(resolution: float, steps: int) -> tuple[Stage, ...]:
    """Return the stages in which replicas part: from a blurred map nearly to the map itself.

    As for one model that starts far from its density (Singharoy et al. 2016), but here with the part of the density that the
    other replicas do not explain. `resolution` of the map in Å.
    """
    rung = round(steps / len(_RUNGS))
    first = Stage("part", rung, (0.2, 0.5), (_WARM, _WARM), resolution + _RUNGS[0], RESTRAINTS)
    return (
        first,
        *(
            Stage(f"{resolution + more:g} Å", rung, (0.5, 0.5), (_WARM, _ROOM), resolution + more, RESTRAINTS)
            for more in _RUNGS[1:]
        ),
    )


def refinement_stages(steps: int) -> tuple[Stage, ...]:
    """Return the stages that replicas, or a single model, are refined with against the map from where they are."""
    warm = round(0.2 * steps)
    return Stage("warm", warm, (0.5, 0.5), (_COLD, _ROOM), restraints=RESTRAINTS), *_refining(steps - warm)


def _refining(steps: int) -> tuple[Stage, ...]:
    tighten, hold = round(0.3 * steps), round(0.3 * steps)
    return (
        Stage("tighten", tighten, (0.5, 1.0), restraints=RESTRAINTS),
        Stage("hold", hold, restraints=RESTRAINTS),
        Stage("anneal", steps - tighten - hold, temperature=(_ROOM, _COLD), restraints=RESTRAINTS),
    )
