"""Where to begin where nobody is named: what stands out, what others name, and what to get next; none of it accuses."""
