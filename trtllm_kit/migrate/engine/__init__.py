"""From settings of the engine backend to a profile, its files, and the account of every setting."""
