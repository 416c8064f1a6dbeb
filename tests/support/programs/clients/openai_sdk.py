"""Calls of OpenAI's client."""

import asyncio
import json
import sys
import time

import openai

url, _ = sys.argv[1:]
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
MESSAGES = [{"role": "user", "content": "one two"}]
client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)

assert {"parrot", "weather"} <= {model.id for model in client.models.list()}
assert client.models.retrieve("parrot").object == "model"
chat = client.chat.completions.create(model="parrot", messages=MESSAGES)
assert chat.choices[0].message.content == "one two "
chunks = client.chat.completions.create(
    model="parrot", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
)
assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "one two "
with client.chat.completions.stream(model="parrot", messages=MESSAGES) as stream:
    assert stream.get_final_completion().choices[0].message.content == "one two "
called = client.chat.completions.create(model="weather", messages=MESSAGES, tools=[TOOL]).choices[0]
(call,) = called.message.tool_calls
assert (called.finish_reason, json.loads(call.function.arguments)) == ("tool_calls", {"town": "Ulm"})
turns = [*MESSAGES, called.message, {"role": "tool", "tool_call_id": call.id, "content": "rain"}]
told = client.chat.completions.create(model="weather", messages=turns, tools=[TOOL])
assert told.choices[0].message.content == "It says: rain"
assert client.completions.create(model="parrot", prompt="one two").choices[0].text == "one two "
made = client.embeddings.create(model="embedder", input=["abc", "abcdef"])
assert [one.embedding[0] for one in made.data] == [3, 6]
raw = client.chat.completions.with_raw_response.create(model="parrot", messages=MESSAGES)
assert raw.headers["x-request-id"]

line = {"custom_id": "1", "method": "POST", "url": "/v1/embeddings", "body": {"model": "embedder", "input": "abc"}}
lifetime = {"anchor": "created_at", "seconds": 3600}
file = client.files.create(file=("in.jsonl", json.dumps(line).encode()), purpose="batch", expires_after=lifetime)
assert file.id in [each.id for each in client.files.list(limit=1, order="desc", purpose="batch")]
batch = client.batches.create(input_file_id=file.id, endpoint="/v1/embeddings", completion_window="24h")
while (batch := client.batches.retrieve(batch.id)).status not in ("completed", "failed"):
    time.sleep(0.1)
assert json.loads(client.files.content(batch.output_file_id).text)["response"]["status_code"] == 200
assert batch.id in [each.id for each in client.batches.list(limit=1)]
for file_id in (file.id, batch.output_file_id):
    assert client.files.delete(file_id).deleted

for call, error, told in (
    (
        lambda: client.responses.create(model="parrot", input="one"),
        openai.NotFoundError,
        "no resource at /v1/responses",
    ),
    (lambda: client.completions.create(model="none", prompt="one"), openai.NotFoundError, "no model 'none'"),
    (lambda: client.completions.create(model="parrot", prompt=[]), openai.BadRequestError, "'prompt' is not a text"),
    (lambda: client.files.list(extra_query={"limt": 1}), openai.BadRequestError, "no query parameter 'limt'"),
):
    try:
        call()
    except error as raised:
        assert told in raised.message
        assert raised.code
        assert raised.type == "invalid_request_error"
    else:
        raise AssertionError(told)


async def main():
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        stream = await client.chat.completions.create(model="parrot", messages=MESSAGES, stream=True)
        assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == "one two "


asyncio.run(main())
print("all answered")
