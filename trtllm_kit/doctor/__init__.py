"""Is this machine what it should be: facts that probes read, rules over them, and a hardware profile made of them."""
