"""Two deployments that were asked the same."""
