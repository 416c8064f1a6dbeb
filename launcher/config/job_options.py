"""The options of a job, from a checked configuration."""

from __future__ import annotations

from cluster_serving.job.options import BatchOptions, ImageOptions, JobOptions, ModelOptions, RedisOptions
from cluster_serving.launcher.config.model import Config


def sized_for(config: Config, engine: str) -> Config:
    """Turn `coreNumberPerMachine` into threads and copies as is best for the engine.

    Args:
        config: A checked configuration.
        engine: Name of the engine, from `check_model`.
    """
    cores = config.core_number_per_machine
    if cores is None:
        return config
    threads, copies = (cores, 1) if engine == "OpenVINO" else (1, cores)
    return config.model_copy(update={"thread_per_model": threads, "model_parallelism": copies})


def model_options(config: Config) -> ModelOptions:
    """Return the options of the model."""
    return ModelOptions(
        path=config.model_path,
        threads=config.thread_per_model,
        precision=config.inference_precision,
        inputs=config.inputs,
        outputs=config.outputs,
        input_shapes=config.input_shapes,
        allow_pickle=config.allow_pickle,
        encrypted=config.model_encrypted,
        timeout_s=config.inference_timeout or 0.0,
    )


def job_options(config: Config, submission: str, payload_folder: str = "") -> JobOptions:
    """Return all options of the job.

    Args:
        config: A checked configuration.
        submission: Identifier of this start.
        payload_folder: See `launcher.jobs.payload_folder`.
    """
    return JobOptions(
        name=config.job_name,
        submission=submission,
        model=model_options(config),
        redis=RedisOptions(
            url=config.redis_url,
            job=config.job_name,
            timeout_ms=config.redis_timeout,
            result_ttl_s=config.result_ttl,
            claim_idle_ms=config.claim_idle_time * 1000,
            max_request_bytes=config.max_request_bytes,
            max_deliveries=config.max_deliveries,
            max_queue_length=config.max_queue_length,
            payload_folder=payload_folder,
        ),
        batch=BatchOptions(
            config.max_batch_size, config.batch_timeout, config.greedy_batching, config.input_already_batched
        ),
        image=ImageOptions(
            resize=config.image_resize,
            max_pixels=config.max_image_pixels,
            color=config.image_color,
            layout=config.image_layout,
            scale=config.image_scale,
            mean=config.image_mean,
            std=config.image_std,
            record_key=config.record_key if config.record_encrypted else None,
        ),
        parallelism=config.model_parallelism,
        execution_mode=config.execution_mode,
        post_processing=config.post_processing,
        request_deadline_ms=config.request_deadline,
    )
