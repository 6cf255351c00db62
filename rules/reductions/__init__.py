"""Pure functions from the columns of a case to the small structures that rules look at."""
