"""Outputs as an I/O spec declares them, and specs proposed from a run: do the values bear them out?"""
