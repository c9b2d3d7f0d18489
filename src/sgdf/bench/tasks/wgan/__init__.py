"""Images drawn by a generator that was trained against a critic (WGAN-GP)."""
