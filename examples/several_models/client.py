"""Ask each model of a front end for what it serves, and both for predictions."""

import os

import httpx
from sklearn.datasets import load_iris, load_wine

URL = os.environ.get("URL", "http://localhost:10020")

with httpx.Client(base_url=URL, timeout=60) as client:
    for model in client.get("/models").raise_for_status().json():
        inputs = ", ".join(f"{one['name']} {one['dtype']}{one['shape']}" for one in model["inputs"])
        print(f"{model['modelName']} version {model['modelVersion']} is {model['state']}: {inputs}")
    for name, data in (("flowers", load_iris()), ("wines", load_wine())):
        rows = data.data[::10]
        body = {"instances": [{"input": row.tolist()} for row in rows]}
        answer = client.post(f"/models/{name}/predict", json=body).raise_for_status().json()
        found = [prediction["value"][0]["label"] for prediction in answer["predictions"]]
        right = sum(label == data.target_names[kind] for label, kind in zip(found, data.target[::10], strict=True))
        print(f"{name}: {right} of {len(rows)} right, such as {found[0]}, {found[-1]}")
