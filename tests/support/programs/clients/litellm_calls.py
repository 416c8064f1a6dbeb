"""Calls of LiteLLM, with a server of OpenAI's API."""

import asyncio
import os
import sys

# Without it LiteLLM fetches a list of prices.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
import litellm

url, _ = sys.argv[1:]
OPTIONS = {"api_base": f"{url}/v1", "api_key": "none", "num_retries": 0}
MESSAGES = [{"role": "user", "content": "one two"}]

answer = litellm.completion("openai/parrot", MESSAGES, **OPTIONS)
assert answer.choices[0].message.content == "one two "
chunks = litellm.completion("openai/parrot", MESSAGES, stream=True, **OPTIONS)
assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "one two "
assert litellm.text_completion(model="text-completion-openai/parrot", prompt="one two", **OPTIONS).choices[0].text
made = litellm.embedding("openai/embedder", ["abc"], **OPTIONS)
assert made.data[0]["embedding"][0] == 3
try:
    litellm.completion("openai/none", MESSAGES, **OPTIONS)
except litellm.NotFoundError as error:
    assert "there is no model 'none'" in str(error)
else:
    raise AssertionError("an unknown model answered")


async def main():
    answer = await litellm.acompletion("openai/parrot", MESSAGES, **OPTIONS)
    assert answer.choices[0].message.content == "one two "


asyncio.run(main())
print("all answered")
