"""Pooled worker for the job types inference and evaluation: it classifies images of handwritten digits with PyTorch."""

__version__ = "0.1.0"
