"""Pooled worker for the job type training: it runs the training worker as a child process."""

__version__ = "0.1.0"
