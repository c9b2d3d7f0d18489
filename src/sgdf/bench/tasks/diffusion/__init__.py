"""Images drawn from noise by a transformer: diffusion (DiT) and flow matching (SiT)."""
