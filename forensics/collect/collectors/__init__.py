"""One module for each source of evidence; `forensics.collect.plan` says which run, when and for how long."""
