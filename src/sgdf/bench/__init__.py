"""Compare optimizers: experiments as TOML files, one training loop, runs that are never lost."""
