"""Pages, SVG plots, sample images and lines for terminals, drawn from numbers."""
