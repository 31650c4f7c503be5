"""Several servers and distributed stores under load, while parts of them fail. `make test-scale`."""
