"""Programs that doctor runs by path in some Python, so that none can hang or crash it; they import nothing of it.

``nvml.py`` (nvidia-ml-py), ``cuda.py`` (the driver by ctypes) and ``versions.py`` print one JSON object. ``measure.py``
runs the package ``calibrate`` in a Python that has torch; benchmarks import the same package.
"""
