"""Alternate conformers that are fitted: copies of residues that do not see each other, each with its part of the density.

`copies` says which can be, `refinement` fits them, `last_stage` does so at the end of a fit where the map tells them apart.
"""
