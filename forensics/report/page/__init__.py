"""The verdict as one HTML page that needs nothing else: no network, no script, light and dark, on screen and on paper."""
