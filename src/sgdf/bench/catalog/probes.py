"""The probes that an experiment can name; any other is named by where it is imported from."""

PROBES = {
    # The norm of the whole gradient.
    "gradient-norm": "sgdf.bench.training.probe:GradientNorm",
    # The mean gain of SGDF's filter, beside that on steady noise.
    "gain": "sgdf.analysis.probes.gain:Gain",
    # How near raw gradient, running mean and filter are to the gradient of many examples.
    "estimate": "sgdf.analysis.probes.estimate:Estimate",
    # How far a step moves the weights, relative to their norm.
    "update-size": "sgdf.analysis.probes.update_size:UpdateSize",
    # The largest eigenvalue of the Hessian on some training examples.
    "sharpness": "sgdf.analysis.probes.sharpness:Sharpness",
}
