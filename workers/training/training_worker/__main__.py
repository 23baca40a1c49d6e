"""Entry point of ``python3 -m training_worker``."""

from training_worker.main import main

if __name__ == "__main__":
    main()
