"""The tree of pages beside the pages of source: made once for those of one depth, as it is the same for all of them."""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx


def setup(app: Sphinx) -> dict[str, Any]:
    """Add it to a build."""
    trees: dict[tuple[int, tuple[Any, ...]], str] = {}

    def share_tree(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
        make = context.get("toctree")
        if not page.startswith("_modules/") or make is None:
            return

        def tree(**options: Any) -> str:
            key = page.count("/"), tuple(sorted(options.items()))
            if key not in trees:
                trees[key] = make(**options)
            return trees[key]

        context["toctree"] = tree

    app.connect("html-page-context", share_tree, priority=100)  # before the theme asks for it
    return {"parallel_read_safe": True, "parallel_write_safe": True}
