"""The only modules of health that touch the machine: the network and the process table."""
