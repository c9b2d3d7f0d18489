"""How near drawn images are to real ones: Fréchet distances, classifier score, neighbours.

torchmetrics has these scores too, but its states are not made to be continued from a checkpoint, it
keeps every feature or probability for all but the Fréchet distance, and it takes images alone.
"""
