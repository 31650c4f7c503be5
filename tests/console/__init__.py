"""The web console in a real browser, against a real server. `make test-console` runs these."""
