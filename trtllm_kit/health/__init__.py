"""What it says: reads the metrics of a running server, makes snapshots, findings and a verdict.

target.py  where to look        -> Target
sources/   reads (*)            -> Snapshot
metrics.py what the numbers are -> Reading, or why there is none
rules.py   what healthy means   -> Rule (rules.yaml, changed by the profile: load.py)
evaluate.py judges (pure)       -> Verdict
report.py  prints               -> Nagios line, JSON, exit code

Everything but target.py and load.py imports the standard library only, so that a check from cron starts fast.
"""
