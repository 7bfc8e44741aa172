"""Checks of what somebody has already: read what is there, ask the rules about it, say where it stands."""
