"""Entry point of ``python3 -m inference_worker``: ``batch`` or ``serve``, in a pod of its own."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command that is named. Each ends the process."""
    command = sys.argv[1] if len(sys.argv) == 2 else ""
    if command == "batch":
        from inference_worker.batch_command import run

        run()
    elif command == "serve":
        from inference_worker.serve_command import serve

        serve()
    print("usage: python3 -m inference_worker batch|serve   (CONFIG has the config, as JSON)", file=sys.stderr)
    sys.exit(64)


if __name__ == "__main__":
    main()
