"""How many random examples a property is tried on: a few in the default run, more where FORENSICS_EXAMPLES says so."""

import os

EXAMPLES = int(os.environ.get("FORENSICS_EXAMPLES", "4"))
