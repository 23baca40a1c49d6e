"""Pooled worker for the job type simulation: it computes what sensors with noise, drift and faults would measure."""

__version__ = "0.1.0"
