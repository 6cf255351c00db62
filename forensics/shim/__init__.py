"""The user's side of the collector inside the process: how it is switched on, what its logs say now, what stands in its way."""
