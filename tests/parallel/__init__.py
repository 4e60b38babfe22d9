"""Tests on N ranks with TensorFlow; each test starts its own ranks."""
