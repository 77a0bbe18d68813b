"""Facts about molecules, by the names, elements, bonds and positions of their atoms; no model files, no maps, no energies.

Restraints, validation and rebuilding use what is found here: flat groups (`planes`), elements, residues and their
names, the backbone and its chains, torsions, side chains, stereocentres, secondary structure, contacts, pierced rings, and the
Ramachandran tables.
"""

from ...base.lazy_names import lazy_names

__getattr__, __dir__ = lazy_names(__name__, ("planes",))
