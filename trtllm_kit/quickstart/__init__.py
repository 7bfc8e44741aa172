"""The whole road once, on a small real model: fetches it, and drives every stage in order."""
