"""Completions and embeddings, asked for by OpenAI's own client."""

import base64
import json
import threading
from functools import partial

import httpx
import numpy as np
import openai
import pytest

from cluster_serving.frontend.api.openai import chat, completions
from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.keys import GROUP
from cluster_serving.protocol.results import encode_result
from cluster_serving.protocol.slots import SlotReport, TensorSpec
from cluster_serving.protocol.tensors import decode
from tests.support.fixtures.echo import answering
from tests.support.fixtures.generating import CALLER, EMBEDDER, PARROT, generating
from tests.support.fixtures.waiting import wait_until

ENDLESS = """
    import time

    class Handler:
        inputs = {"prompt": "str"}

        def predict(self, batch):
            while True:
                yield {"text": ["word "] * len(batch["prompt"])}
                time.sleep(0.02)
    """


TALKER = """
    import json

    class Handler:
        inputs = {"messages": "str", "max_tokens": "int64"}
        outputs = {"text": "str"}

        def predict(self, batch):
            turns = [json.loads(text) for text in batch["messages"]]
            return {"text": [" ".join(f"{turn['role']}:{turn['content']}" for turn in chat) for chat in turns]}
    """

POLITE = """
    class Handler:
        inputs = {"text": "str", "system": "str"}
        outputs = {"text": "str"}

        def predict(self, batch):
            return {"text": [f"{text} ({system})" for text, system in zip(batch["text"], batch["system"])]}
    """


def said(role, content):
    return {"role": role, "content": content}


@pytest.fixture
def ask(serve):
    with openai.OpenAI(base_url=f"{serve().url}/v1", api_key="none", max_retries=0, timeout=30) as client:
        yield client


SILENT = """
    from cluster_serving.job.handlers import END

    class Handler:
        inputs = {"prompt": "str", "max_tokens": "int64"}

        def predict(self, batch):
            for step in range(5):
                yield [{"text": "word ", "completion_tokens": step + 1} if step < most else END
                       for most in batch["max_tokens"]]
    """


def test_an_empty_completion_is_one(redis_server, job, ask, tmp_path):
    message = [said("user", "say nothing")]
    with generating(redis_server.port, job, tmp_path, SILENT):
        whole = ask.completions.create(model=job, prompt="say nothing", max_tokens=0)
        assert (whole.choices[0].text, whole.choices[0].finish_reason) == ("", "stop")
        chat = ask.chat.completions.create(model=job, messages=message, max_tokens=0)
        assert (chat.choices[0].message.content, chat.choices[0].finish_reason) == ("", "stop")
        chunks = list(ask.completions.create(model=job, prompt=["a", "b"], max_tokens=0, stream=True))
        assert [(chunk.choices[0].index, chunk.choices[0].finish_reason) for chunk in chunks] == [
            *((0, None), (0, "stop"), (1, None), (1, "stop"))
        ]
        with ask.chat.completions.stream(model=job, messages=message, max_tokens=0) as stream:
            final = stream.get_final_completion()
        assert (final.choices[0].message.role, final.choices[0].message.content) == ("assistant", "")


TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
HISTORY = [
    {
        "role": "user",
        "content": [{"type": "text", "text": "and"}, {"type": "image_url", "image_url": {"url": "data:,"}}],
    },
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call-0", "type": "function", "function": {"name": "weather", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "call-0", "content": "rain", "name": "weather"},
]


def test_a_chat_gets_all_of_the_messages_and_calls_tools(redis_server, job, ask, tmp_path):
    asked = {"model": job, "messages": HISTORY, "tools": [TOOL], "tool_choice": "auto"}
    with generating(redis_server.port, job, tmp_path, CALLER):
        choice = ask.chat.completions.create(**asked).choices[0]
        (call,) = choice.message.tool_calls
        assert (choice.finish_reason, choice.message.content, call.id) == ("tool_calls", None, "call-1")
        assert (call.function.name, json.loads(call.function.arguments)) == ("weather", HISTORY)
        with ask.chat.completions.stream(**asked) as stream:
            (streamed,) = stream.get_final_completion().choices
        assert streamed.finish_reason == "tool_calls"
        (call,) = streamed.message.tool_calls
        assert json.loads(call.function.arguments) == HISTORY
        whole = ask.chat.completions.create(model=job, messages=HISTORY, tools=[], stop=["a", "b"], store=False)
        assert (whole.choices[0].message.content, whole.choices[0].message.tool_calls) == ("rain 2 rain 2 ", None)
        forbidden = ask.chat.completions.create(**asked | {"tool_choice": "none"})
        assert (forbidden.choices[0].message.content, forbidden.choices[0].finish_reason) == ("rain 0 rain 0 ", "stop")
        with pytest.raises(openai.BadRequestError, match=r"messages\[1\].role is not a text"):
            ask.chat.completions.create(model=job, messages=[HISTORY[0], {"content": "x"}])


def test_a_model_without_tools_refuses_them_and_takes_what_asks_for_nothing(redis_server, job, ask, tmp_path):
    neutral = {"tools": [], "tool_choice": "none", "store": False, "response_format": {"type": "text"}, "user": "me"}
    neutral |= {"ignore_eos": False, "min_tokens": 0, "top_k": -1, "repetition_penalty": 1, "prompt_logprobs": None}
    asking = {"tools": [TOOL], "response_format": {"type": "json_object"}, "ignore_eos": True, "min_tokens": False}
    asking |= {"top_k": 5, "repetition_penalty": 1.1, "prompt_logprobs": 0, "detokenize": False}
    with generating(redis_server.port, job, tmp_path, PARROT):
        chat = ask.chat.completions.create(model=job, messages=[said("user", "one")], extra_body=neutral)
        assert chat.choices[0].message.content == "one "
        for unused in ({"tools": [TOOL], "tool_choice": "none"}, {"functions": [TOOL], "function_call": "none"}):
            chat = ask.chat.completions.create(model=job, messages=[said("user", "one")], extra_body=unused)
            assert chat.choices[0].message.content == "one "
        asking["functions"] = {}
        for name, value in asking.items():
            with pytest.raises(openai.BadRequestError, match=f"the model has no input '{name}'.* leave it out"):
                ask.chat.completions.create(model=job, messages=[said("user", "one")], extra_body={name: value})


def test_a_stream_has_its_role_once_and_its_usage_if_asked_for(redis_server, job, ask, tmp_path):
    asked = {"model": job, "messages": [said("user", "go on")], "max_tokens": 3, "stream": True}
    with generating(redis_server.port, job, tmp_path, SILENT):
        chunks = list(ask.chat.completions.create(**asked, stream_options={"include_usage": True}))
        assert [chunk.choices[0].delta.role for chunk in chunks[:-1]] == ["assistant", None, None, None]
        assert [chunk.usage for chunk in chunks[:-1]] == [None] * 4
        assert chunks[-1].choices == []
        # The model does not count the tokens of the prompt.
        usage = chunks[-1].usage
        assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (0, 3, 3)
        usual = list(ask.chat.completions.create(**asked))
        assert all(chunk.choices and "usage" not in chunk.model_fields_set for chunk in usual)
        with pytest.raises(openai.BadRequestError, match="expected .*include_usage"):
            ask.chat.completions.create(**asked, stream_options=True)
        with pytest.raises(openai.BadRequestError, match="without 'include_usage'"):
            ask.chat.completions.create(**asked, stream_options={"continuous_usage_stats": True})
        continuous = {"include_usage": True, "continuous_usage_stats": True}
        chunks = list(ask.chat.completions.create(**asked, stream_options=continuous))
        assert [chunk.usage.completion_tokens for chunk in chunks if chunk.usage] == [1, 2, 3, 3, 3]


@pytest.mark.parametrize(("name", "dtype", "default"), [("ignore_eos", "bool", False), ("top_k", "int64", 0)])
def test_a_parameter_of_vllm_may_be_an_input(name, dtype, default):
    specs = TensorSpec("prompt", "str", (None,)), TensorSpec(name, dtype, (None,))
    report = SlotReport(submission="", state="ready", engine="", inputs=specs, outputs=())
    for sent, value in (({}, default), ({name: type(default)(1)}, 1)):
        (record,) = completions.read(json.dumps({"prompt": "a"} | sent).encode(), 9, {"": report}).records
        assert decode(record.data)[1][name].item() == value


def test_a_completion_comes_whole_or_in_pieces(redis_server, job, ask, tmp_path):
    with generating(redis_server.port, job, tmp_path, PARROT):
        whole = ask.completions.create(model=job, prompt="one two three four", max_tokens=3)
        assert (whole.choices[0].text, whole.choices[0].finish_reason) == ("one two three ", "length")
        chunks = list(ask.completions.create(model=job, prompt="one two three four", stream=True))
        assert [chunk.choices[0].text for chunk in chunks] == ["one ", "two ", "three ", "four ", ""]
        assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * 4 + ["stop"]
        assert len({chunk.id for chunk in chunks}) == 1
        assert chunks[0].model == job
        # A parameter that the model does not take is left out, and `stop` is one or several texts.
        stopped = ask.completions.create(model=job, prompt="one two three", stop="three", top_p=0.5, user="me")
        assert stopped.choices[0].text == "one two "


def test_a_model_of_one_text_answers_the_message_of_the_user(redis_server, job, ask, tmp_path):
    with generating(redis_server.port, job, tmp_path, PARROT):
        create = ask.chat.completions.create
        messages = [said("system", "Be brief."), said("user", [{"type": "text", "text": "one two three"}])]
        whole = create(model=job, messages=messages, max_completion_tokens=2, response_format={"type": "text"})
        (choice,) = whole.choices
        assert (choice.message.role, choice.message.content) == ("assistant", "one two ")
        assert (choice.finish_reason, whole.object) == ("length", "chat.completion")
        chunks = list(create(model=job, messages=messages, stream=True))
        assert [chunk.choices[0].delta.content for chunk in chunks] == ["one ", "two ", "three ", None]
        assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * 3 + ["stop"]
        assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
        for wrong, message in (
            ([said("user", "a"), said("assistant", "b"), said("user", "c")], "expected one message of the user"),
            ([], "messages.* is empty, or not a list"),
            ([said("user", [{"type": "image_url"}])], r"messages\[0\].content has parts that are not texts"),
            ([{"content": "a"}], r"messages\[0\].role is not a text"),
        ):
            with pytest.raises(openai.BadRequestError, match=message):
                create(model=job, messages=wrong)
        for name, value in {"response_format": {"type": "json_object"}, "prediction": {"content": "one"}}.items():
            with pytest.raises(openai.BadRequestError, match=f"the model has no input '{name}'"):
                create(model=job, messages=messages, **{name: value})


@pytest.mark.parametrize(
    ("code", "role", "answer"),
    [
        (TALKER, "system", "system:Be brief. user:a assistant:b user:c"),
        (POLITE, "system", "c (Be brief.)"),
        # As newer clients say it.
        (POLITE, "developer", "c (Be brief.)"),
    ],
)
def test_a_model_may_take_all_messages_or_that_of_the_system(redis_server, job, ask, tmp_path, code, role, answer):
    messages = [said(role, "Be brief."), said("user", "a"), said("assistant", "b"), said("user", "c")]
    with generating(redis_server.port, job, tmp_path, code):
        given = messages if code is TALKER else [messages[0], messages[-1]]
        assert ask.chat.completions.create(model=job, messages=given).choices[0].message.content == answer
        if code is TALKER:
            for create in (partial(ask.completions.create, prompt="a"), partial(ask.embeddings.create, input="a")):
                with pytest.raises(openai.BadRequestError, match="POST its messages to /v1/chat/completions"):
                    create(model=job)


def test_several_prompts_are_several_choices(redis_server, job, ask, tmp_path):
    with generating(redis_server.port, job, tmp_path, PARROT):
        whole = ask.completions.create(model=job, prompt=["a b", "c"], n=2)
        assert [choice.text for choice in whole.choices] == ["a b ", "a b ", "c ", "c "]
        texts = {}
        for chunk in ask.completions.create(model=job, prompt=["a b", "c"], stream=True):
            (choice,) = chunk.choices
            texts[choice.index] = texts.get(choice.index, "") + choice.text
        assert texts == {0: "a b ", 1: "c "}


def test_errors_have_the_form_of_the_api(redis_server, job, ask, tmp_path):
    with generating(redis_server.port, job, tmp_path, PARROT):
        with pytest.raises(openai.BadRequestError, match="'max_tokens'.*'many'") as raised:
            ask.completions.create(model=job, prompt="a", max_tokens="many")
        assert raised.value.type == "invalid_request_error"
        assert raised.value.code == "INVALID_INPUT"
        with pytest.raises(openai.BadRequestError, match="there is no parameter 'temprature'"):
            ask.completions.create(model=job, prompt="a", extra_body={"temprature": 1})
        with pytest.raises(openai.BadRequestError, match="'prompt' is not a text"):
            ask.completions.create(model=job, prompt=[1, 2])
        with pytest.raises(openai.NotFoundError, match="there is no model 'other'"):
            ask.completions.create(model="other", prompt="a")
        for stream in (False, True):
            with pytest.raises(openai.InternalServerError, match="the handler failed in predict: RuntimeError"):
                ask.completions.create(model=job, prompt="fail", stream=stream)
        got = []
        with pytest.raises(openai.APIError, match="the handler failed in predict: RuntimeError"):
            for chunk in ask.completions.create(model=job, prompt="fail-late", stream=True):
                got.append(chunk.choices[0].text)
        assert got == ["fail-late "]
        # Other tests have jobs in this Redis, too.
        assert job in [model.id for model in ask.models.list()]


def test_an_input_of_one_text_is_not_cut_from_a_list_of_several():
    report = SlotReport(
        submission="",
        state="ready",
        engine="Echo",
        inputs=(TensorSpec("prompt", "str", (None,)), TensorSpec("stop", "str", (None,))),
    )

    def stop_of(**body):
        (record,) = completions.read(json.dumps({"prompt": "a", **body}).encode(), 1, {"": report}).records
        return decode(record.data)[1]["stop"].item()

    assert [stop_of(), stop_of(stop=[]), stop_of(stop="b"), stop_of(stop=["b"])] == ["", "", "b", "b"]
    with pytest.raises(InvalidInput, match="'stop' is a list of 3 texts; the model expects one text"):
        stop_of(stop=["b", "c", "d"])


@pytest.mark.parametrize(("dtype", "absent", "sent"), [("str", "", "false"), ("bool", True, False)])
def test_a_truth_value_of_the_api_may_be_an_input(dtype, absent, sent):
    specs = (TensorSpec("prompt", "str", (None,)), TensorSpec("parallel_tool_calls", dtype, (None,)))
    report = SlotReport(submission="", state="ready", engine="", inputs=specs, outputs=())

    def given(**parameters):
        body = json.dumps({"prompt": "a", **parameters}).encode()
        (record,) = completions.read(body, 9, {"": report}).records
        return decode(record.data)[1]["parallel_tool_calls"].item()

    assert (given(), given(parallel_tool_calls=False)) == (absent, sent)


@pytest.mark.parametrize(
    ("read", "sent", "most"),
    [
        (completions.read, {"prompt": "a"}, 16),
        (chat.read, {"messages": [said("user", "a")]}, 2**31 - 1),
        (chat.read, {"messages": [said("user", "a")], "max_tokens": None}, 2**31 - 1),
        (chat.read, {"messages": [said("user", "a")], "max_completion_tokens": 0}, 0),
    ],
)
def test_only_a_completion_is_limited_by_default(read, sent, most):
    specs = TensorSpec("prompt", "str", (None,)), TensorSpec("max_tokens", "int32", (None,))
    report = SlotReport(submission="", state="ready", engine="", inputs=specs, outputs=())
    (record,) = read(json.dumps(sent).encode(), 9, {"": report}).records
    assert decode(record.data)[1]["max_tokens"].item() == most


@pytest.mark.parametrize(
    ("parameters", "error"),
    [
        ({"max_tokens": True}, "'max_tokens' is true; expected a whole number"),
        ({"temperature": "1"}, "'temperature' is '1'; expected a number"),
        ({"stop": [1]}, "'stop' is [1]; expected a text or a list of texts"),
        ({"logit_bias": []}, "'logit_bias' is []; expected an object"),
        ({"stream_options": {"usage": True}}, "'stream_options' is "),
    ],
)
def test_a_parameter_that_the_model_does_not_take_has_its_type(parameters, error):
    report = SlotReport(
        submission="", state="ready", engine="", inputs=(TensorSpec("prompt", "str", (None,)),), outputs=()
    )
    with pytest.raises(InvalidInput) as raised:
        completions.read(json.dumps({"prompt": "a", **parameters}).encode(), 9, {"": report})
    assert str(raised.value).startswith(error)


def test_a_client_that_hangs_up_stops_the_model(redis_server, db, job, serve, tmp_path):
    url = serve().url
    with generating(redis_server.port, job, tmp_path, ENDLESS):
        body = {"model": job, "prompt": "go", "stream": True}
        with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=30) as response:
            lines = response.iter_lines()
            assert next(lines).startswith("data: {")
            assert response.headers["content-type"].startswith("text/event-stream")
            assert response.headers["x-model-version"] == "7"
            assert db.xpending(job, GROUP)["pending"] == 1
        wait_until(lambda: not db.xlen(job))
        wait_until(lambda: not db.keys(f"{job}:pieces*"))


def test_embeddings_of_texts(redis_server, job, ask, tmp_path):
    with generating(redis_server.port, job, tmp_path, EMBEDDER):
        # The client asks for base64 unless it is told otherwise.
        made = ask.embeddings.create(model=job, input=["abc", "abcdef"])
        np.testing.assert_array_equal([one.embedding for one in made.data], [[3, 1, 0], [6, 2, 0]])
        assert (made.usage.prompt_tokens, made.usage.total_tokens) == (9, 9)
        one = ask.embeddings.create(model=job, input="abc", encoding_format="float", dimensions=3)
        assert one.data[0].embedding == [3, 1, 0]
        with pytest.raises(openai.BadRequestError, match="'dimensions' is 2, but the model gives 3"):
            ask.embeddings.create(model=job, input="abc", dimensions=2)
        with pytest.raises(openai.BadRequestError, match="token ids, but the model takes text: str"):
            ask.embeddings.create(model=job, input=[1, 2])
        with pytest.raises(openai.BadRequestError, match="'input' is empty"):
            ask.embeddings.create(model=job, input=[])
        answer = httpx.post(
            f"{ask.base_url}embeddings", json={"model": job, "input": "abc", "encoding_format": "base64"}, timeout=30
        ).json()
        raw = base64.b64decode(answer["data"][0]["embedding"])
        assert np.frombuffer(raw, "<f4").tolist() == [3, 1, 0]


def test_texts_of_a_request_for_embeddings_share_entries(db, job, report, serve):
    outputs = (TensorSpec("embedding", "float32", (None, 2)),)
    report(("text", "str", (None, 1)), outputs=outputs, columns=True, max_batch_size=16)
    sizes = []

    def answer(entry):
        sizes.append(entry.record_count)
        texts = entry.decode()[1]["text"]
        return encode_result(True, ["embedding"], [np.array([[len(text), 0] for (text,) in texts], "f4")])

    with answering(db, job, answer):
        body = {"model": job, "input": ["a" * size for size in range(1, 33)]}
        data = httpx.post(f"{serve().url}/v1/embeddings", json=body, timeout=30).json()["data"]
    assert [each["embedding"][0] for each in data] == [*range(1, 33)]
    assert sizes == [16, 16]


def test_many_streams_at_a_time(redis_server, db, job, serve, tmp_path):
    url = serve().url
    texts = {}

    def read(number):
        body = {"model": job, "prompt": " ".join([str(number)] * 5), "stream": True}
        with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=60) as response:
            texts[number] = sum(f'"text":"{number} "' in line for line in response.iter_lines())

    with generating(redis_server.port, job, tmp_path, PARROT):
        threads = [threading.Thread(target=read, args=(number,)) for number in range(100, 140)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert texts == dict.fromkeys(range(100, 140), 5)
        assert len(db.client_list()) < 60


def test_numbers_have_the_ranges_of_that_api(redis_server, job, ask, tmp_path):
    wrong = {"temperature": (-1, 2.5), "top_p": (2, -0.1), "n": (0, 129), "frequency_penalty": (-3,), "seed": (2**63,)}
    wrong |= {"presence_penalty": (2.1,), "max_tokens": (-1,), "logit_bias": ({"50": 101},)}
    of_completions = {"best_of": (21,), "logprobs": (6, 21)}
    of_chats = {"top_logprobs": (21,), "max_completion_tokens": (-1,)}
    limits = {"temperature": 2, "top_p": 0, "n": 1, "frequency_penalty": -2, "presence_penalty": 2, "seed": -1}
    hints = {"reasoning_effort": "low", "verbosity": "low", "prompt_cache_key": "a", "safety_identifier": "b"}
    with generating(redis_server.port, job, tmp_path, PARROT):
        completions = partial(ask.completions.create, model=job, prompt="one")
        chats = partial(ask.chat.completions.create, model=job, messages=[said("user", "one")])
        for create, own in ((completions, of_completions), (chats, of_chats)):
            for name, values in (wrong | own).items():
                for value in values:
                    with pytest.raises(openai.BadRequestError, match=rf"'{name}[.50]*' is .*expected a number "):
                        create(extra_body={name: value})
            assert create(extra_body=limits | hints | {"max_tokens": 0, "logit_bias": {"50": -100}}).choices


@pytest.mark.parametrize(("given", "told"), [("", ""), ("stop", "stop"), ("stopstoplength", "length"), ("own", "own")])
def test_a_reason_of_each_piece_is_one_reason(given, told):
    outputs = {"text": np.array("a b "), "finish_reason": np.array(given)}
    assert completions.of_piece(outputs).reason == told


def test_a_model_of_messages_whose_outputs_are_not_known_is_a_chat():
    def takes(*names, outputs=()):
        specs = [TensorSpec(name, "str", (None,)) for name in names]
        return completions.takes(SlotReport("", "ready", engine="", inputs=specs, outputs=outputs))

    assert takes("messages", "tools", "tool_choice") == {"chat"}
    assert takes("text") == takes("messages", "other") == set()
    assert takes("messages", outputs=[TensorSpec("y", "float32", (None, 2))]) == set()
