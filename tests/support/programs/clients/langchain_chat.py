"""Calls of LangChain's classes for OpenAI's API."""

import asyncio
import sys

from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings

url, _ = sys.argv[1:]
OPTIONS = {"base_url": f"{url}/v1", "api_key": "none", "max_retries": 0}


@tool
def weather(town: str) -> str:
    """Return the weather of a town."""
    return f"rain in {town}"


model = ChatOpenAI(model="parrot", **OPTIONS)
answer = model.invoke("one two")
assert answer.content == "one two "
assert answer.usage_metadata["total_tokens"] == 0
assert "".join(chunk.content for chunk in model.stream("one two")) == "one two "
assert [each.content for each in model.batch(["one", "two"])] == ["one ", "two "]
agent = ChatOpenAI(model="weather", **OPTIONS).bind_tools([weather])
turns = [HumanMessage("rain?"), agent.invoke("rain?")]
turns += [weather.invoke(call) for call in turns[-1].tool_calls]
assert agent.invoke(turns).content == "It says: rain in Ulm"
assert OpenAI(model="parrot", **OPTIONS).invoke("one two") == "one two "
vectors = OpenAIEmbeddings(model="embedder", check_embedding_ctx_length=False, **OPTIONS)
assert vectors.embed_query("abc")[0] == 3
assert [vector[0] for vector in vectors.embed_documents(["a", "ab"])] == [1, 2]


async def main():
    assert (await model.ainvoke("one two")).content == "one two "
    assert "".join([chunk.content async for chunk in model.astream("one two")]) == "one two "


asyncio.run(main())
print("all answered")
