"""Off the removed engine backend, and across releases: what somebody has, as what the next release takes."""
