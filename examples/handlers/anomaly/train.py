"""Train the detector: `python train.py history.csv` reads a column of numbers, and writes detector.joblib."""

import sys
from pathlib import Path

import joblib
import numpy as np
from features import features
from sklearn.ensemble import IsolationForest

SHARE_OF_ANOMALIES = 0.001  # of the windows in the history


def main():
    history = np.loadtxt(sys.argv[1], ndmin=1)
    detector = IsolationForest(contamination=SHARE_OF_ANOMALIES, random_state=0).fit(features(history))
    path = Path(__file__).with_name("detector.joblib")
    joblib.dump(detector, path)
    print(f"{path}: an isolation forest of {len(features(history))} windows")


if __name__ == "__main__":
    main()
