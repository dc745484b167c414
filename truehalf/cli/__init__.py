"""The command `truehalf`, one subcommand a file."""
