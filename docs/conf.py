"""Sphinx's configuration of the site: Markdown of this folder, furo's theme, nothing from a network."""

project = "truehalf"
extensions = ["myst_parser"]
exclude_patterns = ["NOTES.md"]  # of the project's development, of no use to a reader
myst_heading_anchors = 3  # links to headings, as GitHub forms them
myst_enable_extensions = ["deflist"]  # the glossary
smartquotes = False  # quotes and dashes are those of commands
html_theme = "furo"
html_static_path, html_css_files = ["_static"], ["site.css"]
html_title = "truehalf"
html_use_index = False
html_show_search_summary = False  # its script would fetch pages, which a browser refuses where they are files
html_copy_source = html_show_sourcelink = html_show_copyright = False
