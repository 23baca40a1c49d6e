"""Reference training worker: data-parallel PyTorch training that follows docs/worker-contract.md."""

__version__ = "0.1.0"
