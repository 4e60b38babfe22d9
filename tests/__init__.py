"""The tests.  A package, so that rank processes can import test functions by name."""
