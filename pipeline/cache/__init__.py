"""DVC's run-cache, its locks, and remotes."""
