"""Makes the bundled model: ``python3 -m inference_worker.train_model`` writes digits-cnn.npz, the same one each time.

It trains the training worker's own network ``cnn`` on the training part of the bundled digits, with a fixed seed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from training_worker import data, models
from training_worker.config import BUNDLED_DATA_DIR

from inference_worker.model import BUNDLED, CLASSES, SIDE, SPLIT_SEED, VALIDATION_FRACTION, digits_scale

EPOCHS = 40
BATCH = 64
LEARNING_RATE = 0.003
SEED = 7


def train(epochs: int = EPOCHS) -> tuple[dict[str, np.ndarray], float]:
    """Train, and return the weights and the accuracy on the validation part."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    dataset = data.load("digits", BUNDLED_DATA_DIR, VALIDATION_FRACTION, SPLIT_SEED)
    network = models.create("cnn", (1, SIDE, SIDE), CLASSES, dropout=0.2)
    optimizer = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    x, y = torch.from_numpy(dataset.x_train), torch.from_numpy(dataset.y_train)
    for epoch in range(epochs):
        order = torch.from_numpy(data.epoch_order(len(x), SEED, epoch))
        for batch in order.split(BATCH):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(x[batch]), y[batch]).backward()
            optimizer.step()
        schedule.step()
    network.eval()
    with torch.no_grad():
        found = network(torch.from_numpy(dataset.x_validation)).argmax(dim=1).numpy()
    weights = {name: tensor.numpy() for name, tensor in network.state_dict().items()}
    return weights, float((found == dataset.y_validation).mean())


def main() -> None:
    """Write the model to the file named, or to where the worker reads it."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else BUNDLED["digits-cnn"][1]
    weights, accuracy = train()
    mean, deviation = digits_scale()
    np.savez_compressed(path, mean=np.float32(mean), deviation=np.float32(deviation), **weights)
    print(f"{path}: accuracy {accuracy:.4f} on the validation part, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
