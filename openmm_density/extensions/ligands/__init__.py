"""``--ligand-forcefield xtb`` and ``openmmml:NAME``: potentials of a model's ligands, found, or made where there are none yet."""
