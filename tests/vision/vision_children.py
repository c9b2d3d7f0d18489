"""A script that calls the fallback first; its child processes import torchvision, too."""

from sgdf import torchvision_fallback

torchvision_fallback.install()

import os  # noqa: E402
import sys  # noqa: E402

import torch  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402
from torchvision import ops, transforms  # noqa: E402


class Crops(Dataset):
    """Crops of random images, with how many of two boxes stay."""

    def __init__(self):
        self.transform = transforms.RandomCrop(4)

    def __len__(self):
        return 4

    def __getitem__(self, number):
        boxes = torch.tensor([[0.0, 0, 9, 9], [0, 0, 9, 8]])
        staying = len(ops.nms(boxes, torch.ones(2), 0.5))
        return self.transform(torch.rand(3, 8, 8)), staying, os.getpid()


if __name__ == "__main__":
    way = sys.argv[1]
    if way == "torchrun":
        print("rank", os.environ["RANK"], Crops()[0][1])
    else:
        found = list(DataLoader(Crops(), num_workers=2, multiprocessing_context=way))
        assert os.getpid() not in [int(process) for *_, process in found]
        print("workers", [int(staying) for _, staying, _ in found])
