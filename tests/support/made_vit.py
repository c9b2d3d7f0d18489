"""A tiny vision transformer in a file of Google's layout, and the same network in plain numpy."""

import math

import numpy as np
from scipy.special import erf

from sgdf.bench.tasks.vit.transformer import Size

TINY = Size(patch=2, hidden=8, blocks=2, heads=2, inner=12)
ATTENTION, MLP = "MultiHeadDotProductAttention_1", "MlpBlock_3"


def made_arrays(size=TINY, grid=3, seed=0):
    """Return arrays by their names in Google's files, the unused ones included."""
    rng = np.random.default_rng(seed)
    h, heads, inner = size.hidden, size.heads, size.inner
    split = (heads, h // heads)
    shapes = {
        "cls": (1, 1, h),
        "embedding/kernel": (size.patch, size.patch, 3, h),
        "embedding/bias": (h,),
        "Transformer/posembed_input/pos_embedding": (1, 1 + grid**2, h),
        "Transformer/encoder_norm/scale": (h,),
        "Transformer/encoder_norm/bias": (h,),
        "pre_logits/kernel": (h, h),
        "pre_logits/bias": (h,),
        "head/kernel": (h, 21),
        "head/bias": (21,),
    }
    for number in range(size.blocks):
        block = f"Transformer/encoderblock_{number}"
        for norm in ("LayerNorm_0", "LayerNorm_2"):
            shapes |= {f"{block}/{norm}/scale": (h,), f"{block}/{norm}/bias": (h,)}
        for part in ("query", "key", "value"):
            shapes[f"{block}/{ATTENTION}/{part}/kernel"] = (h, *split)
            shapes[f"{block}/{ATTENTION}/{part}/bias"] = split
        shapes[f"{block}/{ATTENTION}/out/kernel"] = (*split, h)
        shapes[f"{block}/{ATTENTION}/out/bias"] = (h,)
        for layer, (inputs, outputs) in (("Dense_0", (h, inner)), ("Dense_1", (inner, h))):
            shapes[f"{block}/{MLP}/{layer}/kernel"] = (inputs, outputs)
            shapes[f"{block}/{MLP}/{layer}/bias"] = (outputs,)
    return {name: rng.normal(size=s).astype(np.float32) for name, s in shapes.items()}


def normalised(x, arrays, name):
    """Return tokens normalised one by one."""
    spread = np.sqrt(x.var(-1, keepdims=True) + 1e-6)
    return (x - x.mean(-1, keepdims=True)) / spread * arrays[f"{name}/scale"] + arrays[
        f"{name}/bias"
    ]


def plain_features(arrays, images, size=TINY):
    """Return the features of images (n, 3, side, side), in float64, from the arrays of a file."""
    arrays = {name: array.astype(np.float64) for name, array in arrays.items()}
    n, p, grid = len(images), size.patch, images.shape[-1] // size.patch
    pieces = images.astype(np.float64).reshape(n, 3, grid, p, grid, p)
    tokens = np.einsum("ncypxq,pqch->nyxh", pieces, arrays["embedding/kernel"])
    tokens = tokens.reshape(n, grid**2, -1) + arrays["embedding/bias"]
    tokens = np.concatenate([np.repeat(arrays["cls"], n, 0), tokens], 1)
    tokens = tokens + arrays["Transformer/posembed_input/pos_embedding"]
    for number in range(size.blocks):
        block = f"Transformer/encoderblock_{number}"
        tokens = tokens + attended(
            normalised(tokens, arrays, f"{block}/LayerNorm_0"), arrays, block
        )
        x = normalised(tokens, arrays, f"{block}/LayerNorm_2")
        x = x @ arrays[f"{block}/{MLP}/Dense_0/kernel"] + arrays[f"{block}/{MLP}/Dense_0/bias"]
        x = x * 0.5 * (1 + erf(x / math.sqrt(2)))
        x = x @ arrays[f"{block}/{MLP}/Dense_1/kernel"] + arrays[f"{block}/{MLP}/Dense_1/bias"]
        tokens = tokens + x
    return normalised(tokens, arrays, "Transformer/encoder_norm")[:, 0]


def attended(x, arrays, block):
    """Return what each token sees."""
    query, key, value = (
        np.einsum("nth,had->ntad", x, arrays[f"{block}/{ATTENTION}/{part}/kernel"])
        + arrays[f"{block}/{ATTENTION}/{part}/bias"]
        for part in ("query", "key", "value")
    )
    scores = np.einsum("ntad,nsad->nats", query, key) / math.sqrt(query.shape[-1])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    seen = np.einsum("nats,nsad->ntad", weights, value)
    out = np.einsum("ntad,adh->nth", seen, arrays[f"{block}/{ATTENTION}/out/kernel"])
    return out + arrays[f"{block}/{ATTENTION}/out/bias"]
