"""What the tests share: starting ranks and waiting for them."""
