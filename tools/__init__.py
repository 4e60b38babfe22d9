"""What the Makefile runs; run the modules as `python -m tools.NAME` from the root."""
