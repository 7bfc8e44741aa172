"""What a card reaches, measured with torch: products, attention, memory, launches, collectives. On its own.

``measure.py`` runs it in another environment under the name ``calibrate``, so its modules name each other relatively.
Random inputs, as many sets as three times the L2; device events around graph replays; medians.
"""
