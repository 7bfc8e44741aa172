"""Which configuration to run: the legal ones, bounds, simulations of the best, and what stopped the others."""
