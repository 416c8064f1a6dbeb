"""Send one image to a running job, and print the most probable classes.

Usage: python examples/predict.py IMAGE [--port 6379] [--name digits]
"""

import argparse
import sys

from cluster_serving.client import InputQueue, ServingError


def main() -> int:
    parser = argparse.ArgumentParser(description="Send one image to a running job.")
    parser.add_argument("image", help="path of a JPEG, PNG, BMP, WebP or TIFF file")
    parser.add_argument("--port", type=int, default=6379, help="port of Redis (default 6379)")
    parser.add_argument("--name", default="digits", help="jobName (default digits)")
    arguments = parser.parse_args()
    with InputQueue(port=arguments.port, name=arguments.name) as queue:
        try:
            result = queue.predict({"image": {"path": arguments.image}}, timeout=10)
        except ServingError as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            return 1
    for class_index, probability in result.top_n:
        print(f"class {class_index}: {probability:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
