"""What a fit leaves behind: models, log, summary with notes and doubts, and pictures."""

from .folder import AFTER_FILES, FILES, UNFINISHED, OutputFolder

__all__ = ["AFTER_FILES", "FILES", "UNFINISHED", "OutputFolder"]


def __dir__() -> list[str]:
    return __all__
