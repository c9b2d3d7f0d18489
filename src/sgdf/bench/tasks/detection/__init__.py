"""Detection: boxes around things in photographs, found by a Faster R-CNN."""
