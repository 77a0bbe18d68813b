"""Several Systems side by side in one: for many copies of a molecule, or many small parts of one, in one Context.

`merged_system` says what a merged System is, `displacements` where its copies are put, `bonded_forces` and `nonbonded_forces` how
each kind of force is merged. `copied_particles` adds copies of some particles, bound to the same neighbours, to one System, and
`copied_system` copies a whole one.
"""

from .copied_particles import CopiedParticles, add_copies
from .copied_system import copied_force, copied_system
from .displacements import displacements_apart
from .merged_system import MergedSystem, merge_systems, unmergeable
from .terms import constraints_of, masses_of, terms_of

__all__ = [
    "CopiedParticles",
    "MergedSystem",
    "add_copies",
    "constraints_of",
    "copied_force",
    "copied_system",
    "displacements_apart",
    "masses_of",
    "merge_systems",
    "terms_of",
    "unmergeable",
]
