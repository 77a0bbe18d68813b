"""A potential of a ligand's own, learned from GFN2-xTB: from a molecule to a file that a fit uses.

`ligand` is the molecule, `potential_file` what is kept of it, `accuracy` how far it can be trusted,
`ligand_energy` what it is in a System.
"""

from ..lazy_names import lazy_names

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Accuracy": "accuracy",
        "Ligand": "ligand",
        "LigandEnergy": "ligand_energy",
        "LigandPotential": "potential_file",
        "Teacher": "potential_file",
        "load": "potential_file",
        "save": "potential_file",
    },
)
