"""The keys of `config.yaml`, each with its type, default, meaning and checks; flat camelCase, as the original's."""

import os
from functools import cache
from pathlib import Path
from types import new_class
from typing import Any, Literal, cast

from pydantic import Field, ValidationInfo, field_validator

from cluster_serving.job.options import CPU
from cluster_serving.job.remote.url import is_url
from cluster_serving.launcher.config import stages, targets
from cluster_serving.launcher.config.values import (
    LATEST,
    Channels,
    Cores,
    DeviceNames,
    Divisors,
    Filter,
    JobName,
    ModelPath,
    ModelVersion,
    Padding,
    Pair,
    RecordKeyText,
    SecretAndSalt,
    Shapes,
    Size,
    WholeInputs,
)
from cluster_serving.protocol.record_key import RecordKey
from cluster_serving.protocol.redis import addresses
from cluster_serving.protocol.redis.url import HINT
from cluster_serving.protocol.values import filters
from cluster_serving.settings.addresses import Address, FlinkUrl, RedisUrl, redacted
from cluster_serving.settings.model import Settings, SettingsConfig
from cluster_serving.settings.values import Names


def key(default: Any, expects: str, meaning: str, **constraints: Any) -> Any:
    """Declare a key; `expects` is in error messages, and with the meaning in the generated file."""
    return Field(default, description=meaning, json_schema_extra={"expects": expects}, **constraints)


NO_FOLDER = "none"
"""Value of `payloadFolder`: clients send all inputs through Redis."""

_JOB_NAME = (
    "letters, digits, '_', '-' and '.', perhaps the first of them in {braces}; up to 200 of them, and not . or .. alone"
)
_COUNT = "a whole number of at least 1"
NAMES = "names separated by commas, or a list"
_SWITCH = "true or false"
POOLING = "mean, cls, last, max, mean_sqrt_len_tokens, weightedmean"
_POOLING_TEXT = r"^(|POOL( *\+ *POOL)*)$".replace("POOL", f"({POOLING.replace(', ', '|')}|lasttoken)")
_BYTES = "a size such as 4g, 512m or a number of bytes"


class Config(Settings):
    """A checked `config.yaml`; made by `config.file.read`."""

    model_config = SettingsConfig(strict=True, env_prefix="CLUSTER_SERVING_", env_ignore_empty=True)

    model_path: ModelPath = key(
        ...,
        "the path of a folder that is mounted here, or an address: a folder or archive of s3://, gs://, hdfs:// or "
        "webhdfs://, an archive of https:// or file://",
        "Folder that holds one model, or one in each subfolder (docs/how-to/many-models.md); docs/reference/models.md "
        "lists the formats, such as *.xml and *.bin (OpenVINO), *.onnx, *.pt (TorchScript), *.keras, or "
        "saved_model.pb and variables/. A relative path starts "
        "at the folder of this file. A Flink elsewhere gets a copy (flink.ship), or fetches the model from an address "
        "such as s3://bucket/model or https://host/model.zip#sha256=... Required.",
        min_length=1,
    )
    model_version: ModelVersion = key(
        LATEST,
        "latest or a whole number",
        "Version of the model, where modelPath holds no model but a subfolder for each version, with a number as its "
        "name: model/1/, model/2/. latest is the highest number. Other subfolders, such as 3.tmp/, are not versions.",
    )
    watch_model: bool = key(
        False,
        "true or false; false if modelPath is the address of one model",
        "true: a new version in the folder of the model, or changed files of a model without versions, are served as "
        "soon as they are complete, without a command.",
    )
    model_control: bool = key(
        False,
        _SWITCH,
        "true: clients of the HTTP front end may load the model again and unload it, which stops the job: /load and "
        "/unload of the v2 repository API (docs/reference/grpc.md). Set apiKeysFile of the front end if others reach "
        "its port.",
    )
    job_name: JobName = key(
        "serving_stream",
        _JOB_NAME,
        "Name of the job: its Redis stream, its result keys, and the name in the Flink UI. Clients name it in "
        "InputQueue(name=...). Jobs of different names share one Redis and one Flink.",
    )

    model_parallelism: int | None = key(
        None,
        "a whole number from 1 to 4096, or empty",
        "Task slots that serve the job, each with its own copy of the model. Empty: as many as are best together with "
        "threadPerModel and maxBatchSize, which is measured at the first start (docs/how-to/all-cores.md); 1 with "
        "autoscale.max, or where the job runs on other machines.",
        ge=1,
        le=4096,
    )
    thread_per_model: int | None = key(
        None,
        f"{_COUNT}, or empty",
        "Threads that one copy of the model may use. Empty: measured, or as the environment variable OMP_NUM_THREADS "
        "says (a number, or all); 1 where nothing is measured.",
        ge=1,
    )
    core_number_per_machine: Cores = key(
        None,
        _COUNT,
        "Sets modelParallelism and threadPerModel from the cores of a machine: OpenVINO uses all of them as threads of "
        "one copy, other engines run as many copies of one thread.",
        ge=1,
    )
    prefer: Literal["throughput", "latency"] = key(
        "throughput",
        "throughput or latency",
        "throughput: what is measured is chosen for the most records per second, with batches of at most 50 ms or ten "
        "times the time of one record. latency: for the shortest time of one record. performance_mode: ON, as in the "
        "original, is throughput.",
    )
    inference_precision: Literal["", "float32"] = key(
        "",
        "float32 or empty",
        "float32: OpenVINO computes in float32 on every CPU. Empty: in bfloat16 where the CPU has it, up to twice "
        "as fast and right to two or three digits. Other engines compute as the model says.",
    )
    device: DeviceNames = key(
        CPU,
        "cpu, cuda, cuda:0, gpu, gpu:0, npu or auto, or several of them with commas between, such as cuda:0,cuda:1",
        "Device of the model. cuda: GPUs of NVIDIA for PyTorch, ONNX Runtime and TensorFlow; gpu and npu: those of "
        "Intel for OpenVINO. Slot i takes device i modulo n, of a list or of all that there are. auto: a GPU if the "
        "engine reports one, else the CPU. What was taken is in cluster-serving-cli status (docs/how-to/gpus.md).",
        pattern=r"^(auto|(cpu|(cuda|gpu|npu)(:\d{1,3})?)(,(cpu|(cuda|gpu|npu)(:\d{1,3})?))*)$",
    )
    execution_mode: Literal["thread", "process"] = key(
        "thread",
        "thread or process",
        "thread: the model runs inside Flink's TaskManager, fastest. process: it runs in processes of its own; a crash "
        "in native code ends one of them, not the TaskManager.",
    )

    allow_pickle: bool = key(
        False,
        _SWITCH,
        "true: load PyTorch models that were pickled. Loading runs the code in the file, so trust only your own files.",
    )
    handler: str = key(
        "",
        "module:Class such as package.module:Class, none, or empty",
        "Class with your own code around the model (docs/how-to/handlers.md), in the model folder or installed. "
        "Empty: that of handler.py in the model folder, if there is one; none: the model without it. The handler.py "
        "of a model that comes from an address runs only if it is named here, as handler:Handler, so trust the "
        "address.",
        pattern=r"^(none|[A-Za-z_][\w.]*:[A-Za-z_]\w*)?$",
    )
    model_encrypted: bool = key(
        False,
        _SWITCH,
        "true: the model's files are encrypted as in the original; the Redis hash model_secured has secret and salt.",
    )
    model_secret: SecretAndSalt = key(
        "",
        "secret:salt, or empty",
        "Key of the model's files, preferably in the environment variable CLUSTER_SERVING_MODEL_SECRET. "
        "cluster-serving-start stores it in model_secured; empty: it is stored there in another way.",
        repr=False,
    )
    inputs: Names = key("", NAMES, "Inputs of the model to feed, in this order; empty: its own.")
    outputs: Names = key("", NAMES, "Outputs of the model to return, in this order; empty: all.")
    input_shapes: Shapes = key(
        [],
        "a list of shapes, such as [[3,224,224]]",
        "Shape of each input of one record, without a batch dimension, for models that do not tell it (TorchScript).",
    )
    whole_inputs: WholeInputs = key(
        None,
        "true, false, or names separated by commas",
        "true: a record has the whole tensors of the model, as of a graph (nodes and edges) or a sequence. Names: "
        "these inputs have no batch. false: each input has one. Empty: symbols of the model, such as batch, "
        "and calls tell.",
    )
    missing_value: float | None = key(
        None,
        "a number, or empty",
        "Number that stands for a missing value in the columns of a table, beside null and NaN: `missing` of the "
        "classes of XGBoost, which their files do not hold.",
        allow_inf_nan=False,
    )
    input_already_batched: bool = key(
        False,
        _SWITCH,
        "true: inputs carry a batch dimension of their own where their number of dimensions does not tell, and a batch "
        "may be larger than maxBatchSize.",
    )
    padding: Padding = key(
        {},
        "a mapping of inputs and numbers, such as {input_ids: 0, attention_mask: 0}, or empty",
        "Inputs whose sizes differ between requests, each with the number that fills up shorter records, so that "
        "requests of similar sizes share a batch. Outputs are cut back. Without it, requests of equal shapes do.",
    )
    tokenizer: Literal["", "none", "pair"] = key(
        "",
        "pair, none or empty",
        "Empty: a tokenizer.json beside the model makes its inputs of a text (docs/how-to/texts-and-tables.md). pair: "
        "of two, text and text_pair, as a reranker needs them. none: clients send token ids.",
    )
    max_tokens: int | None = key(
        None, f"{_COUNT}, or empty", "Tokens to which texts are cut. Empty: as many as tokenizer.json says.", ge=1
    )
    max_text_length: int = key(100_000, _COUNT, "Texts of more characters are refused before they are tokenized.", ge=1)
    prompt: str = key("", "a text, or empty", "Text that stands before each text, such as 'query: '.")
    pooling: str = key(
        "",
        f"{POOLING}, several with + between, or empty",
        "Makes one vector, the output embedding, of the vectors of tokens: their mean, that of the first token (cls) "
        "or of the last, or as sentence-transformers defines the others. cls+mean joins two.",
        pattern=_POOLING_TEXT,
    )
    pool_prompt: bool = key(True, _SWITCH, "false: pooling leaves out the tokens of the prompt.")
    embedding_layers: Names = key(
        "",
        "names of folders in the model folder separated by commas, such as 2_Dense, or empty",
        "Layers that compute with the pooled vector, in this order: Dense and LayerNorm of sentence-transformers, each "
        "a folder with config.json and model.safetensors.",
    )
    normalize: bool = key(False, _SWITCH, "true: vectors are divided by their length (L2).")
    image_resize: Pair = key(
        "",
        "width,height in pixels, such as 224,224, or empty",
        "Size that images are scaled to, width first; empty: they keep their own.",
    )
    image_shortest_edge: int | None = key(
        None,
        f"{_COUNT}, or empty; not beside imageResize",
        "Pixels of the shorter edge, to which images are scaled in place of imageResize; the longer one follows.",
        ge=1,
    )
    image_resample: Literal["", "nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"] = key(
        "",
        "nearest, bilinear, bicubic, lanczos, box, hamming or empty",
        "How images are scaled, as Pillow, transformers and torchvision name it. Empty: bilinear as by OpenCV, which "
        "takes no mean of pixels where it makes images smaller, as in the original.",
    )
    image_crop: Pair = key(
        "",
        "width,height in pixels, such as 224,224, not larger than imageResize or imageShortestEdge, or empty",
        "Size of the middle that is cut out of the scaled image, width first; smaller images are refused.",
    )
    image_color: Literal["BGR", "RGB", "GRAY"] = key(
        "BGR", "BGR, RGB or GRAY", "Order of an image's channels, BGR as in the original; GRAY has a single one."
    )
    image_layout: Literal["", "HWC", "CHW"] = key(
        "",
        "HWC, CHW or empty",
        "Order of an image's axes; empty: as the model's shape says, else HWC for TensorFlow and CHW for the others.",
    )
    image_scale: float = key(1.0, "a number", "Factor of the pixels, which are numbers from 0 to 255.", gt=0)
    image_mean: Channels = key(
        [0],
        "a list of one number, or of three unless imageColor is GRAY",
        "Mean that is subtracted from the scaled pixels, per channel or one for all.",
    )
    image_std: Divisors = key(
        [1],
        "a list of one number, or of three unless imageColor is GRAY, none of them 0",
        "Divisor of the result, per channel or one for all.",
    )
    max_image_pixels: int = key(50_000_000, _COUNT, "Larger images are refused before they are decoded.", ge=1)
    record_encrypted: bool = key(
        False, _SWITCH, "true: clients encrypt their images (docs/how-to/model-stores.md); others are refused."
    )
    record_key: RecordKeyText = key(
        "",
        "secret:salt, two texts of your own, or published; it cannot be empty if recordEncrypted is true",
        "Key of encrypted images, preferably in the environment variable CLUSTER_SERVING_RECORD_KEY. published: the "
        "key in the source code of the original, for its clients; everybody knows it, so it protects nothing.",
        repr=False,
    )
    inference_timeout: float | None = key(
        None,
        "a number of seconds, or empty",
        "A request on which the model does not return within these seconds is answered with an error, and the slot "
        "goes on with a fresh copy of the model; empty or 0: no limit.",
        ge=0,
    )
    post_processing: Filter = key(
        "",
        filters.EXPECTED,
        "Filters that change each output: topN(n) keeps the n best classes with their values, threshold(x) those of x "
        "or more, pickTopN(n) the first n rows of a table; softmax and argmax compute along the last axis, and sigmoid "
        "each number; labels(file) puts the lines of a file in the model folder for classes. top_n(n) is topN(n) in "
        "the text that clients of 0.7 read.",
    )

    max_batch_size: int | None = key(
        None,
        f"{_COUNT}, or empty",
        "Most records in one batch. Empty: measured, up to 32; 32 where nothing is measured.",
        ge=1,
    )
    batch_timeout: int = key(
        10,
        "a whole number of milliseconds, 0 or more",
        "Milliseconds that a record waits at most for its batch to fill.",
        ge=0,
    )
    greedy_batching: bool = key(
        True, _SWITCH, "true: a batch does not wait while nothing is queued, so an idle system adds no delay."
    )

    redis_url: RedisUrl = key(
        "localhost:6379",
        "host:port, redis://user:password@host:port/db, rediss://... for TLS, redis+sentinel://host:port,.../service, "
        f"or redis+cluster://host:port,... with a jobName in braces, such as '{{serving_stream}}'; {HINT}",
        "Redis for requests and results, 6.2 or later. On this machine it is started if nothing listens there.",
        repr=False,
    )
    redis_timeout: int = key(
        5000, "a whole number of milliseconds, at least 1", "Milliseconds to wait for an answer of Redis.", ge=1
    )
    redis_max_memory: Size | None = key(
        None,
        f"{_BYTES}, at least 1m, or empty",
        "Memory limit of the Redis that is started here; at the limit, requests are refused. Empty: 8g, as in the "
        "original's start script, or half of the machine's memory if that is less.",
        ge=1 << 20,
    )
    payload_folder: str = key(
        "",
        "the path of a folder, none, or empty",
        "Folder for inputs of 64 KiB or more. Clients that find it under the same path leave such inputs there, "
        "and not in Redis. Empty: a folder beside the data of the Redis that is started here; none: no folder.",
    )
    result_ttl: int = key(3600, "a whole number of seconds, at least 1", "Seconds that a result is kept.", ge=1)
    claim_idle_time: int = key(
        60,
        "a whole number of seconds, at least 1",
        "Seconds after which the requests of a silent slot are given to another slot.",
        ge=1,
    )
    max_queue_length: int = key(
        0,
        "a whole number, 0 for no limit",
        "Most requests without an answer; further ones are refused or wait at their client (QueueFull). 0: as many as "
        "the memory of Redis holds. Original clients do not look at it.",
        ge=0,
    )
    request_deadline: int = key(
        0,
        "a whole number of milliseconds, 0 for no limit",
        "Milliseconds that a request without a deadline of its own may wait before it is computed. A request that has "
        "waited longer is dropped and answered with an error; 0: none is dropped.",
        ge=0,
    )
    max_deliveries: int = key(
        3,
        _COUNT,
        "Deaths of the computing process after which a request is given up; the request goes to the stream "
        "<jobName>:dead. In process mode, a request that crashes a process alone is given up then.",
        ge=1,
    )
    max_request_bytes: Size = key("64m", _BYTES, "Larger requests are refused.", ge=1)

    flink_rest_url: FlinkUrl = key(
        "localhost:8081",
        "host:port",
        "Flink's REST endpoint and UI. On this machine a cluster is started if nothing listens there. Not used where "
        "flink.target names YARN or Kubernetes.",
    )
    slots_per_task_manager: int = key(
        8,
        _COUNT,
        "Task slots of each TaskManager that is started here; a job that needs more gets further TaskManagers. A "
        "TaskManager is a process: its death ends no more than its slots.",
        ge=1,
        le=1024,
    )
    start_timeout: int = key(
        120, "a whole number of seconds, at least 1", "Seconds that each step of cluster-serving-start may take.", ge=1
    )

    autoscale_max: int | None = key(
        None,
        "a whole number, at least modelParallelism, and no coreNumberPerMachine beside it; or empty",
        "Most slots. Empty: their number stays as it is.",
        alias="autoscale.max",
        ge=1,
        le=4096,
    )
    autoscale_min: int = key(
        1,
        "a whole number from 1 to modelParallelism, the number of slots at start; with autoscale.max",
        "Fewest slots.",
        alias="autoscale.min",
        ge=1,
    )
    autoscale_target_queue_wait: int = key(
        100,
        "a whole number of milliseconds, more than batchTimeout unless greedyBatching; with autoscale.max",
        "Milliseconds that 95 % of the requests may wait in the queue. If they wait longer, the job gets more slots.",
        alias="autoscale.targetQueueWait",
        ge=1,
    )

    flink_target: str = key(
        "",
        f"{', '.join(targets.names()[:-1])} or {targets.names()[-1]}, or empty",
        "Where the job runs (docs/how-to/deploy/). Empty: local if flinkRestUrl is on this machine, otherwise remote.",
        alias="flink.target",
    )
    flink_ship: Literal["", "environment", "packages", "model", "nothing"] = key(
        "",
        "environment, packages, model or nothing, or empty",
        "What the job brings along. environment: Python, packages and model; the machines need Flink only. packages: "
        "packages and model, for machines that have the same version of Python. model: the model alone, for machines "
        "that have these packages. nothing: all is there under the same paths. Empty: nothing on this machine, model "
        "for kubernetes-application without flink.volume, otherwise environment.",
        alias="flink.ship",
    )
    flink_options: dict[str, str | int | float | bool] = key(
        {},
        "a mapping of Flink's options, such as {taskmanager.memory.task.off-heap.size: 2g}",
        "Options for Flink, handed over as they are. A Flink on this machine takes them when it is started.",
        alias="flink.options",
        repr=False,
    )
    log_format: Literal["text", "json"] = key(
        "text",
        "text or json",
        "json: a Flink that the commands start, on this machine, YARN or Kubernetes, writes each line of its log as "
        "JSON, once it is started. Of the front end, http.logFormat does.",
    )

    @field_validator("flink_target")
    @classmethod
    def _is_installed(cls, value: str) -> str:
        if value and value not in targets.names():
            raise ValueError("no such target")
        return value

    @field_validator("autoscale_max")
    @classmethod
    def _has_room(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and value < (info.data.get("model_parallelism") or 1):
            raise ValueError("fewer slots than at start")
        if value is not None and info.data.get("core_number_per_machine") is not None:
            raise ValueError("two keys set the number of slots")
        return value

    @field_validator("autoscale_min", "autoscale_target_queue_wait")
    @classmethod
    def _has_a_maximum(cls, value: int, info: ValidationInfo) -> int:
        default = cls.model_fields[str(info.field_name)].default
        if value != default and info.data.get("autoscale_max", 1) is None:
            raise ValueError("autoscale.max is missing")
        return value

    @field_validator("autoscale_min")
    @classmethod
    def _fits_the_start(cls, value: int, info: ValidationInfo) -> int:
        if value > (info.data.get("model_parallelism", value) or 1):
            raise ValueError("more slots than at start")
        return value

    @field_validator("autoscale_target_queue_wait")
    @classmethod
    def _is_possible(cls, value: int, info: ValidationInfo) -> int:
        waits = info.data.get("autoscale_max") and not info.data.get("greedy_batching", True)
        if waits and value <= info.data.get("batch_timeout", 0):
            raise ValueError("batches wait for longer")
        return value

    @field_validator("image_shortest_edge")
    @classmethod
    def _is_one_size(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and info.data.get("image_resize"):
            raise ValueError("two keys set the size of images")
        return value

    @field_validator("image_crop")
    @classmethod
    def _is_within(cls, value: tuple[int, int] | None, info: ValidationInfo) -> tuple[int, int] | None:
        resize, edge = info.data.get("image_resize"), info.data.get("image_shortest_edge")
        if value and resize and (value[0] > resize[0] or value[1] > resize[1]):
            raise ValueError("larger than imageResize")
        if value and edge and min(value) > edge:
            raise ValueError("larger than imageShortestEdge")
        return value

    @field_validator("image_mean", "image_std")
    @classmethod
    def _fits_color(cls, value: tuple[float, ...], info: ValidationInfo) -> tuple[float, ...]:
        # Three numbers would make three channels of one.
        if len(value) > 1 and info.data.get("image_color") == "GRAY":
            raise ValueError("one channel")
        return value

    @field_validator("record_key")
    @classmethod
    def _has_a_key(cls, value: RecordKey | None, info: ValidationInfo) -> RecordKey | None:
        if value is None and info.data.get("record_encrypted"):
            raise ValueError("no key to decrypt with")
        return value

    @field_validator("redis_url")
    @classmethod
    def _keys_in_one_slot(cls, value: str, info: ValidationInfo) -> str:
        # In a Redis Cluster, only keys that share a name in braces are on one node.
        if "+cluster://" in value and not str(info.data.get("job_name", "{")).startswith("{"):
            raise ValueError("jobName has no braces")
        return value

    @property
    def slots(self) -> int:
        """`modelParallelism`, or 1 if it is empty."""
        return self.model_parallelism or 1

    @property
    def redis_address(self) -> Address:
        """Host and port of `redisUrl`; the first of several."""
        if self.redis_has_failover:
            return Address(*addresses.parse(self.redis_url).nodes[0])
        return Address.of(self.redis_url)

    @property
    def redis_has_failover(self) -> bool:
        """True if `redisUrl` names Sentinels or a Redis Cluster."""
        return addresses.is_failover_url(self.redis_url)

    @property
    def flink_address(self) -> Address:
        """Host and port of `flinkRestUrl`."""
        return Address.of(self.flink_rest_url)

    @property
    def target(self) -> str:
        """`flink.target`, or what it is if it is empty."""
        return self.flink_target or ("local" if self.flink_address.is_local else "remote")

    @property
    def ships(self) -> str:
        """`flink.ship`, or what it is if it is empty."""
        return self.flink_ship or targets.kind(self.target).ships(self)

    @property
    def redis_shown(self) -> str:
        """`redisUrl` without user and password."""
        return redacted(self.redis_url)

    def located(self, folder: Path) -> "Config":
        """Return a copy whose paths of folders are absolute; a relative one starts at the folder."""
        keys = [] if is_url(self.model_path) else ["model_path"]
        keys += [] if self.payload_folder in ("", NO_FOLDER) else ["payload_folder"]
        of_stages = stages.values(self)
        keys += [name for kind in stages.kinds() if isinstance(self, kind) for name in kind.folders(of_stages)]
        paths = {key: str((folder / os.path.expanduser(getattr(self, key))).absolute()) for key in keys}
        return self.model_copy(update=paths)


@cache
def with_all_keys() -> type[Config]:
    """Return `Config` with the keys of the stages, and of all targets that are installed.

    Raises:
        SettingsError: If a target cannot be imported.
    """
    # The options of the first base count, and not those that pydantic merges.
    content = {"model_config": Config.model_config, "__module__": __name__, "__doc__": Config.__doc__}
    return cast(
        "type[Config]",
        new_class("Config", (Config, *stages.kinds(), *targets.keys()), exec_body=lambda body: body.update(content)),
    )
