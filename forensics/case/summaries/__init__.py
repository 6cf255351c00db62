"""What an artefact gave, cut to the newest of it: a dump as a recorder with a smaller memory would have left it."""
