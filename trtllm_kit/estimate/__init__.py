"""How long steps and requests take, with the reason and an interval; pure."""
