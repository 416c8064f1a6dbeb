"""Make the index: `python build.py ratings.csv` reads lines of user,item,rating, and writes both files of the index."""

import csv
import sys
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.decomposition import TruncatedSVD

DIMENSIONS = 32


def main():
    with open(sys.argv[1], newline="", encoding="utf8") as file:
        users, items, ratings = zip(*csv.reader(file), strict=True)
    names, columns = np.unique(items, return_inverse=True)
    _, rows = np.unique(users, return_inverse=True)
    table = csr_matrix((np.array(ratings, np.float32), (columns, rows)))
    vectors = TruncatedSVD(min(DIMENSIONS, *(size - 1 for size in table.shape)), random_state=0).fit_transform(table)
    # Of length 1, so that products of them are cosines.
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    folder = Path(__file__).parent
    (folder / "items.txt").write_text("\n".join(names), encoding="utf8")
    np.save(folder / "vectors.npy", vectors.astype(np.float32))
    print(f"{folder / 'vectors.npy'}: {len(names)} items, {vectors.shape[1]} dimensions")


if __name__ == "__main__":
    main()
