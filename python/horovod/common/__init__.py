"""What every part of the package shares.  Standard library only; no TensorFlow."""
