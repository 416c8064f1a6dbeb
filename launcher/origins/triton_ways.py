"""Triton: what is said of fields and parameters that no key of `config.yaml` means."""

_TENSORRT = "a setting of TensorRT"
_SLOTS = "the slots of a job are equal (modelParallelism)"
_PADDING = "the key padding fills up inputs of different sizes"
_PRIORITY = "a request names its priority, as in X-Priority (docs/how-to/limits.md)"
_METRICS = "docs/reference/metrics.md has the metrics of a job, with their labels"
_LATE = "requestDeadline: a request that is late is answered with an error"
_HOW = "it changes the speed of that server, and no answer"
_HANDLER = "its models are called by a handler (docs/how-to/handlers.md)"

FIELDS = {
    "sequence_batching": "a job keeps no state between requests: clients send a whole sequence, or a handler keeps it",
    "ensemble_scheduling": _HANDLER,
    "model_warmup": "a job computes records of its own at its start",
    "model_transaction_policy": "a handler answers a request in pieces (docs/how-to/handler-models.md)",
    "optimization": "the engine optimizes by itself; device and inferencePrecision say where, and how exactly",
    "response_cache": "equal requests are computed again; cache answers in the client, or before the front end",
    "cc_model_filenames": "one file serves all devices: copy another over it if that is the one to serve",
    "model_operations": "no libraries of operations are loaded: a handler may (docs/how-to/handlers.md)",
    "model_repository_agents": "the files are copied as they are",
    "metric_tags": _METRICS,
    "model_metrics": _METRICS,
    "runtime": "the files of the model choose the engine",
    "batch_input": _PADDING,
    "batch_output": _PADDING,
    "input.allow_ragged_batch": _PADDING,
    "input.optional": "a record has all inputs of the model: clients send the default",
    "input.is_shape_tensor": _TENSORRT,
    "output.is_shape_tensor": _TENSORRT,
    "input.is_non_linear_format_io": _TENSORRT,
    "output.is_non_linear_format_io": _TENSORRT,
    "dynamic_batching.preserve_ordering": "an answer goes to its request, in any order",
    "dynamic_batching.priority_levels": _PRIORITY,
    "dynamic_batching.default_priority_level": _PRIORITY,
    "dynamic_batching.priority_queue_policy": _PRIORITY,
    "dynamic_batching.default_queue_policy": _LATE,
    "instance_group": _SLOTS,
}
"""Field of `config.pbtxt` → what to do instead."""

PARAMETERS = {
    "threshold": "set outputs: probabilities, and compare in the client: labels here are those of the library",
    **dict.fromkeys(
        (
            *("algo", "storage_type", "blocks_per_sm", "threads_per_tree", "transfer_threshold"),
            *("use_experimental_optimizations", "xgboost_allow_unknown_field", "cuda_graphs", "execution_mode"),
            *("inter_op_thread_count", "INTER_OP_THREAD_COUNT", "DISABLE_OPTIMIZED_EXECUTION", "INFERENCE_MODE"),
            *("ENABLE_NVFUSER", "ENABLE_CACHE_CLEANING", "ENABLE_CUDNN", "ENABLE_JIT_EXECUTOR", "ENABLE_JIT_PROFILING"),
            *("ENABLE_TENSOR_FUSER", "ENABLE_WEIGHT_SHARING", "memory.enable_memory_arena_shrinkage", "NUM_STREAMS"),
            *("PERFORMANCE_HINT", "TF_NUM_INTER_THREADS", "enable_mem_arena", "enable_mem_pattern"),
        ),
        _HOW,
    ),
}
"""Parameter of a backend → what to do instead."""

THREADS = ("intra_op_thread_count", "INTRA_OP_THREAD_COUNT", "TF_NUM_INTRA_THREADS", "INFERENCE_NUM_THREADS")
"""Parameters with the number of threads of one call."""
