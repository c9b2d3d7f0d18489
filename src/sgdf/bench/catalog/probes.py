"""The probes that an experiment can name; any other is named by where it is imported from."""

PROBES = {"gradient-norm": "sgdf.bench.training.probe:GradientNorm"}
