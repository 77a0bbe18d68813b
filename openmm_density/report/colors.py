"""What colour stands for what, in the model's view and in the plots, as in the pictures of a fit."""

BEFORE, RELAXED, AFTER, REFERENCE = "#8b95a5", "#a98bd1", "#1f6feb", "#d1495b"
OTHER, DOUBTFUL, REBUILT = "#e8590c", "#f08c00", "#2b8a3e"

OF_STAGE = {"initial": BEFORE, "relaxed": RELAXED, "final": AFTER, "reference": REFERENCE}
"""By the endings of the figures of a summary."""
