"""What it says: reads metrics of a running server, makes a snapshot, findings and a verdict."""
