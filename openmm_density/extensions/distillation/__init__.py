"""A potential of a ligand's own, learned from GFN2-xTB: from a molecule to a file that a fit uses.

`molecule` reads what the user names, `geometries` draws its shapes with the cheap `springs`, `labels` asks the teacher,
`students` learn, and `rounds` do all of this until the students are near enough. `ligand` and `potential_file` are what is
kept of it, `accuracy` is how far it can be trusted, `results` are the files,
`ligand_energy` is what it is in a System.
"""

from typing import TYPE_CHECKING

from ...base.lazy_names import lazy_names

if TYPE_CHECKING:
    from .accuracy import FORCE_LIMIT as FORCE_LIMIT
    from .accuracy import Accuracy
    from .labels import SOLVENTS
    from .labels import Labeller as Labeller
    from .ligand import Ligand
    from .ligand_energy import LARGEST_BOUND as LARGEST_BOUND
    from .ligand_energy import LigandEnergy
    from .molecule import ligand_of as ligand_of
    from .molecule import read_molecule
    from .potential_file import LigandPotential, Teacher, read_potential, write_potential
    from .results import write_results
    from .rounds import Distillation, DistillationSettings, distill

# What users import; the others are read from here by this project.
__all__ = [
    "SOLVENTS",
    "Accuracy",
    "Distillation",
    "DistillationSettings",
    "Ligand",
    "LigandEnergy",
    "LigandPotential",
    "Teacher",
    "distill",
    "read_molecule",
    "read_potential",
    "write_potential",
    "write_results",
]

__getattr__, __dir__ = lazy_names(__name__)
