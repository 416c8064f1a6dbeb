import { recordShape, takesImages } from "./example.js";
import { typeText } from "./dom.js";

// Longer values are made by the program instead of being written into it; a shell makes none.
const MOST_NUMBERS = 16;
const MOST_NUMBERS_OF_SHELL = 200;

const ANY = { modelName: "model", inputs: [], outputs: [], inputAlreadyBatched: false };

/**
 * Programs that ask a model, by language.
 * @param {?object} model As the server describes it; null for one that is not known.
 * @param {string} origin Address of the server.
 * @param {boolean} key Whether the server wants an API key.
 */
export function samples(model, origin, key) {
  const known = model ?? ANY;
  const values = known.inputs.length ? known.inputs.map((input) => valueOf(input, known)) : [{ name: "input", literal: "[0, 0]", count: 2 }];
  const url = `${origin}/models/${encodeURIComponent(known.modelName)}/predict`;
  const about = [...known.inputs.map((spec) => `input ${spec.name}: ${typeText(spec)}`), ...known.outputs.map((spec) => `output ${spec.name}: ${typeText(spec)}`)];
  return { curl: curl(values, url, about, key), Python: python(values, url, about, key), JavaScript: javascript(values, url, about, key) };
}

function valueOf(input, model) {
  if (takesImages(model)) return { name: input.name, image: true };
  const shape = recordShape(input, model);
  const literal = { str: '"text"', bool: "false" }[input.dtype] ?? (input.dtype.startsWith("float") ? "0.5" : "0");
  const count = shape.reduce((product, size) => product * size, 1);
  return { name: input.name, shape, item: literal, count, literal: count <= MOST_NUMBERS_OF_SHELL ? nested(shape, literal) : "" };
}

const nested = ([size, ...rest], item) => (size === undefined ? item : `[${Array(size).fill(nested(rest, item)).join(", ")}]`);

// Names are those of any model: one with a line break must not end the comment.
const commented = (mark, lines) => lines.map((line) => `${mark} ${line.replace(/[\p{Cc}\u2028\u2029]/gu, " ")}\n`).join("");

const withinQuotes = (text) => text.replaceAll("'", "'\\''");

function curl(values, url, about, key) {
  const named = (name) => withinQuotes(JSON.stringify(name));
  const begin = `curl '${withinQuotes(url)}' \\\n  -H 'Content-Type: application/json' \\\n${key ? '  -H "X-API-Key: $API_KEY" \\\n' : ""}`;
  if (values.some(({ image }) => image)) {
    const fields = values.map(({ name }) => `${named(name)}: {"b64": "'"$(base64 < image.jpg | tr -d '\\n')"'"}`);
    return `${commented("#", about)}printf '%s' '{"instances": [{${fields.join(", ")}}]}' |\n${begin}  -d @-\n`;
  }
  if (values.every(({ literal }) => literal)) {
    const fields = values.map(({ name, literal }) => `${named(name)}: ${literal}`);
    return `${commented("#", about)}${begin}  -d '{"instances": [{${fields.join(", ")}}]}'\n`;
  }
  const fields = values.map((value) => `${named(value.name)}: ${pythonValue(value)}`);
  return `${commented("#", about)}python3 -c 'import json\nprint(json.dumps({"instances": [{${fields.join(", ")}}]}))' |\n${begin}  -d @-\n`;
}

function python(values, url, about, key) {
  const image = values.some((value) => value.image);
  const fields = values.map((value) => `${JSON.stringify(value.name)}: ${value.image ? '{"b64": image}' : pythonValue(value)}`);
  const read = image ? 'with open("image.jpg", "rb") as file:\n    image = base64.b64encode(file.read()).decode()\n' : "";
  const headers = key ? '    headers={"X-API-Key": os.environ["API_KEY"]},\n' : "";
  return `${image ? "import base64\n" : ""}${key ? "import os\n" : ""}${image || key ? "\n" : ""}import requests\n\n${commented("#", about)}${read}response = requests.post(
    ${JSON.stringify(url)},
    json={"instances": [{${fields.join(", ")}}]},
${headers}    timeout=30,
)
response.raise_for_status()
print(response.json()["predictions"][0]["value"])
`;
}

function javascript(values, url, about, key) {
  const image = values.some((value) => value.image);
  const fields = values.map((value) => `${JSON.stringify(value.name)}: ${value.image ? "{ b64: image }" : scriptValue(value)}`);
  const read = image ? 'import { readFile } from "node:fs/promises";\n\nconst image = (await readFile("image.jpg")).toString("base64");\n' : "";
  const headers = `{ "content-type": "application/json"${key ? ', "x-api-key": process.env.API_KEY' : ""} }`;
  return `${commented("//", about)}${read}const response = await fetch(${JSON.stringify(url)}, {
  method: "POST",
  headers: ${headers},
  body: JSON.stringify({ instances: [{ ${fields.join(", ")} }] }),
});
if (!response.ok) throw new Error((await response.json()).error);
const { predictions } = await response.json();
console.log(predictions[0].value);
`;
}

const pythonText = (literal) => literal.replaceAll("false", "False");

function pythonValue({ shape, item, count, literal }) {
  if (count <= MOST_NUMBERS) return pythonText(literal);
  return shape.reduceRight((value, size) => `[${value}] * ${size}`, pythonText(item));
}

function scriptValue({ shape, item, count, literal }) {
  return count <= MOST_NUMBERS ? literal : shape.reduceRight((value, size) => `Array(${size}).fill(${value})`, item);
}
