"""``report.html``: a fit, or a model alone, in one page that shows the model in its map, and needs no network."""
