"""The command line: one thin file a verb; app.py owns the exit codes."""
