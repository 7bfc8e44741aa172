"""What runs: reads a model repository, makes a running server and asks it questions."""
