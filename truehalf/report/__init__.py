"""JSON of reports by key (`forms.py`); pages, SVG plots, sample images and terminal tables, drawn from numbers."""
