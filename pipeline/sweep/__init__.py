"""Jobs side by side: launchers, isolated workspaces."""
