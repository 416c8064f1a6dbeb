"""Plain FastAPI with the model in the process, without batching, in WORKERS processes."""

import json

import engine
import uvicorn
from fastapi import FastAPI, Request, Response

app = FastAPI()
model = None


@app.on_event("startup")
def load() -> None:
    global model
    model = engine.Engine()


@app.post("/predict")
async def predict(request: Request) -> Response:
    record = engine.read(await request.body())
    return Response(json.dumps({"predictions": model.answer([record])}), media_type="application/json")


if __name__ == "__main__":
    options = engine.chosen(workers=engine.WORKERS)
    uvicorn.run("server:app", host="127.0.0.1", port=engine.PORT, log_level="warning", **options)
