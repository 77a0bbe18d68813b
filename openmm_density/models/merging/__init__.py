"""Several Systems side by side in one: many copies of a molecule, or many small parts of one, share a Context.

`merged_system` makes a merged System, `displacements` decides where its copies go, `bonded_forces` merges
each kind of bonded force. `copied_particles` adds copies of some particles, bound to the same neighbours, to one System,
`copied_system` copies a whole one, and `part_copies` its parts, as like chains.
"""

from .copied_particles import CopiedParticles, add_copies
from .copied_system import copied_force as copied_force
from .copied_system import copied_system as copied_system
from .copied_system import part_of_force as part_of_force
from .displacements import displacements_apart
from .merged_system import MergedSystem, merge_systems, unmergeable
from .part_copies import copies_of_parts as copies_of_parts
from .terms import bare as bare
from .terms import call_for_each as call_for_each
from .terms import constraints_of as constraints_of
from .terms import masses_of as masses_of
from .terms import terms_of as terms_of

# Imported by users; this project imports the other names from here.
__all__ = [
    "CopiedParticles",
    "MergedSystem",
    "add_copies",
    "displacements_apart",
    "merge_systems",
    "unmergeable",
]
