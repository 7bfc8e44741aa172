"""Tests of what touches the machine."""
