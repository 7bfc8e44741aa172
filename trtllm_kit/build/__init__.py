"""Engines: reads a checkpoint and a plan, makes an engine folder with a manifest."""
