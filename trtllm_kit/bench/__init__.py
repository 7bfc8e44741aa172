"""How fast a deployment is, as its users feel it: a client, the load it makes, and what it measured."""
