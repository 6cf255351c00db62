"""What ranks that others wait for do on their hosts."""
