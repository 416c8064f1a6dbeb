"""Send images to a running job, and print the most probable class of each, as `quick_start.py` of the original did.

Usage: python quick_start.py [IMAGE ...] [--port 6379] [--name digits]

Without an image, the first three in the folder `images` beside this file are sent. `cluster-serving quickstart` copies
the file into its folder; `python -m cluster_serving.client.quick_start` runs it, too.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from cluster_serving.client import InputQueue, ServingError

PORT = 6379


def main() -> int:
    """Run the program; returns its exit code."""
    parser = argparse.ArgumentParser(description="Send images to a running job.")
    parser.add_argument("images", nargs="*", metavar="IMAGE", help="a JPEG, PNG, BMP, WebP or TIFF file")
    parser.add_argument("--port", type=int, default=PORT, help="port of Redis (default 6379)")
    parser.add_argument("--name", default="digits", help="jobName (default digits)")
    given = parser.parse_args()
    images = given.images or sorted(Path(__file__).parent.glob("images/*"))[:3]
    if not images:
        parser.error("name an image")
    with InputQueue(port=given.port, name=given.name) as queue:
        for image in images:
            try:
                result = queue.predict({"image": {"path": str(image)}}, timeout=10)
            except ServingError as error:
                print(f"{image}: {type(error).__name__}: {error}", file=sys.stderr)
                return 1
            index, probability = result.top_n[0]
            print(f"image: {Path(image).name}, classification-result: class: {index}'s prob: {probability:.7g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
