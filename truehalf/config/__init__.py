"""Configuration as types, rules between keys, all problems at once."""
