// Most elements of an example: more would make the page slow.
const MOST_NUMBERS = 10_000;

/** Shape of what one request holds: a batch dimension only if the job wants one; sizes that are free are 1. */
export function recordShape({ shape }, model) {
  if (shape === null) return [1];
  return (model.inputAlreadyBatched ? shape : shape.slice(1)).map((size) => size ?? 1);
}

/** Whether the model's only input looks like an image. */
export function takesImages(model) {
  const [input] = model.inputs;
  return model.inputs.length === 1 && input.shape?.length === 4 && input.dtype !== "str";
}

/** A body that the model answers: zeros of the right shapes. Empty, if it would be too long to read. */
export function exampleBody(model) {
  const inputs = model.inputs.length ? model.inputs : [{ name: "input", dtype: "", shape: null }];
  const shapes = inputs.map((input) => recordShape(input, model));
  const count = shapes.reduce((sum, shape) => sum + shape.reduce((product, size) => product * size, 1), 0);
  if (count > MOST_NUMBERS) return "";
  const fields = inputs.map((input, index) => {
    const value = { str: '"text"', bool: "false" }[input.dtype] ?? "0";
    return `    ${JSON.stringify(input.name)}: ${filled(shapes[index], value, 6)}`;
  });
  return `{"instances": [\n  {\n${fields.join(",\n")}\n  }\n]}`;
}

function filled(shape, value, indent) {
  if (!shape.length) return value;
  const [size, ...rest] = shape;
  const items = Array(size).fill(filled(rest, value, indent + 2));
  if (!rest.length) return `[${items.join(", ")}]`;
  const pad = " ".repeat(indent);
  return `[\n${items.map((item) => pad + item).join(",\n")}\n${pad.slice(2)}]`;
}
