"""Train a classifier of short texts on tickets.tsv, in a second, and write it to model/ with its handler."""

import csv
import shutil
from pathlib import Path

import joblib
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

with open("tickets.tsv", encoding="utf8", newline="") as file:
    kinds, texts = zip(*csv.reader(file, delimiter="\t"), strict=True)
# Parts of words, so that "paid" is near "pay", and a wrong letter does little.
vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True)
pipeline = make_pipeline(vectorizer, LogisticRegression(C=30)).fit(texts, kinds)
Path("model").mkdir(exist_ok=True)
joblib.dump(pipeline, "model/pipeline.joblib")
shutil.copy("handler.py", "model")
print(f"Wrote model/, trained on {len(texts)} texts of {len(set(kinds))} kinds")
