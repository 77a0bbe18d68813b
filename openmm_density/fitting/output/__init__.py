"""What a fit leaves behind: models, log, summary with notes and doubts, and pictures."""

from .folder import FILES, UNFINISHED, OutputFolder

__all__ = ["FILES", "UNFINISHED", "OutputFolder"]
