"""Several Systems side by side in one: for many copies of a molecule, or many small parts of one, in one Context.

`merged_system` says what a merged System is, `displacements` where its copies are put, `bonded_forces` and `nonbonded_forces` how
each kind of force is merged. `copied_particles` adds copies of some particles, bound to the same neighbours, to one System, and
`copied_system` copies a whole one.
"""

from .copied_particles import CopiedParticles, add_copies
from .copied_system import copied_force as copied_force
from .copied_system import copied_system as copied_system
from .copied_system import part_of_force as part_of_force
from .displacements import displacements_apart
from .merged_system import MergedSystem, merge_systems, unmergeable
from .terms import constraints_of as constraints_of
from .terms import masses_of as masses_of
from .terms import terms_of as terms_of

# What users import; the others are read from here by this project.
__all__ = [
    "CopiedParticles",
    "MergedSystem",
    "add_copies",
    "displacements_apart",
    "merge_systems",
    "unmergeable",
]
