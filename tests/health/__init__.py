"""Tests of the verdict."""
