"""Results that gradients and estimates can be held against: the exact Kalman filter."""

from .kalman import KalmanOutput, kalman

__all__ = ["KalmanOutput", "kalman"]
