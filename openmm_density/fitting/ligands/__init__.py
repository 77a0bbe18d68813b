"""Ligands with a potential of their own in a fit: where it comes from, and whether it knows where the ligand goes."""
