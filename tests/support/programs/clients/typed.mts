// Calls of every API by types that openapi-typescript has made of the documents; the compiler checks the types.

import createClient from "openapi-fetch";
import type { paths as Vector } from "./vector.js";
import type { paths as Table } from "./table.js";
import type { paths as Parrot } from "./parrot.js";
import type { paths as Server } from "./server.js";

const baseUrl = process.argv[2];

function equal(name: string, got: unknown, expected: unknown) {
  if (JSON.stringify(got) !== JSON.stringify(expected)) throw new Error(`${name}: ${JSON.stringify(got)}`);
}

const vector = createClient<Vector>({ baseUrl });
const rows = await vector.POST("/models/vector/predict", { body: { instances: [{ x: [1, 2, 3] }, [4, 5, 6]] } });
equal("predict", rows.data?.predictions[1].value, [-4, -5, -6]);
const v1 = await vector.POST("/v1/models/vector:predict", { body: { instances: [[1, 2, 3]] } });
equal("v1", v1.data?.predictions, [[-1, -2, -3]]);
const tensor = { name: "x", datatype: "FP32", shape: [1, 3], data: [1, 2, 3] } as const;
const v2 = await vector.POST("/v2/models/vector/infer", { body: { inputs: [{ ...tensor, shape: [1, 3], data: [1, 2, 3] }] } });
equal("v2", typeof v2.data === "object" && v2.data.outputs[0].data, [-1, -2, -3]);
// @ts-expect-error A text is no number.
const wrong = await vector.POST("/models/vector/predict", { body: { instances: [{ x: ["a", 2, 3] }] } });
equal("wrong", wrong.error?.code, "INVALID_INPUT");

const table = createClient<Table>({ baseUrl });
const people = [{ age: null, town: "Ulm" }, { age: 2, town: "Bonn" }];
const prices = await table.POST("/models/table/predict", { body: { instances: people } });
equal("table", prices.data?.predictions.map((price) => price.value), [3, 8]);

const parrot = createClient<Parrot>({ baseUrl });
const chat = await parrot.POST("/v1/chat/completions", { body: { model: "parrot", messages: [{ role: "user", content: "a b" }] } });
equal("chat", chat.data && "choices" in chat.data && chat.data.choices[0].message.content, "a b ");
const text = await parrot.POST("/v1/completions", { body: { model: "parrot", prompt: ["a b", "c"], stop: ["b"] } });
equal("completions", text.data && "choices" in text.data && text.data.choices.map((choice) => choice.text), ["a ", "c "]);

const server = createClient<Server>({ baseUrl });
equal("models", (await server.GET("/v1/models")).data?.models.includes("vector"), true);
const missing = await server.GET("/models/{name}", { params: { path: { name: "none" } } });
equal("missing", [missing.response.status, missing.error?.code], [404, "MODEL_NOT_FOUND"]);
const vectors = await server.POST("/v1/embeddings", { body: { model: "embedder", input: ["abc"] } });
equal("embeddings", vectors.data?.data[0].embedding.length, 3);
const queued = await server.POST("/v1/requests", { body: { model: "vector", instances: [{ x: [1, 2, 3] }] } });
const id = queued.data && "id" in queued.data ? queued.data.id : "";
const fetched = await server.GET("/v1/requests/{id}", { params: { path: { id }, query: { wait: 30 } } });
equal("fetched", fetched.data && "predictions" in fetched.data && fetched.data.predictions[0], { value: [-1, -2, -3] });
console.log("all answered");
