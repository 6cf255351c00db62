"""Rules on the collectives themselves: order, kind, sizes, completion."""
