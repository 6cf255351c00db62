"""The tables that map frames to a training stage and to a kind of wait.

Structure first: modules of torch, the standard library and the known trainers. Words in the job's own function names come last
and are marked as such. Each row is (result, module pattern, function pattern); patterns are anchored at the module's root and
matched against the last component of the function name. Sources: torch 2.13, jax 0.10, lightning 2.x, transformers 4.x, deepspeed
0.1x, Megatron-LM core_r0.x.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Generic, TypeVar

from forensics.model import StageName, WaitKind

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Pattern(Generic[Result]):
    """A frame whose module and function match means `result`."""

    result: Result
    module: re.Pattern[str]
    function: re.Pattern[str]


def _rows(*rows: tuple[Result, str, str]) -> tuple[Pattern[Result], ...]:
    return tuple(Pattern(result, re.compile(module), re.compile(function + r"\Z")) for result, module, function in rows)


_P2P = r"(?:i?send|i?recv|batch_isend_irecv|(?:send|recv)_object_list|_send_recv\w*|recv_(?:forward|backward)|send_(?:forward|backward)\w*)"
_ANY = r".*"
_LIGHTNING = r"(?:lightning/pytorch|pytorch_lightning)/"
_FABRIC = r"(?:lightning/fabric|lightning_fabric)/"

WAITS = _rows(
    (WaitKind.EXITING, r"torch/distributed/distributed_c10d\.py", r"destroy_process_group|_shutdown_backend|_abort_process_group"),
    (WaitKind.EXITING, r"threading\.py", r"_shutdown"),
    (WaitKind.EXITING, r"multiprocessing/util\.py", r"_exit_function"),
    (WaitKind.EXITING, r"concurrent/futures/(?:thread|process)\.py", r"_python_exit"),
    (WaitKind.STORE, r"torch/distributed/(?:distributed_c10d|rendezvous)\.py", r"init_process_group|_store_based_barrier|_new_process_group_helper|rendezvous|_\w*rendezvous_handler|_create_c10d_store|new_group|_new_group_with_tag|split_group|new_subgroups\w*"),
    (WaitKind.STORE, r"torch/distributed/(?:elastic/(?:rendezvous|utils/store)|device_mesh|_store_collectives)", _ANY),
    (WaitKind.POINT_TO_POINT, r"torch/distributed/(?:distributed_c10d\.py|pipelining/|nn/)", _P2P),
    (WaitKind.POINT_TO_POINT, r"torch/distributed/pipelining/", r"_wait_batch_p2p|_(?:sorted_)?batch_p2p"),
    (WaitKind.POINT_TO_POINT, r"(?:megatron/core/pipeline_parallel/p2p_communication|deepspeed/runtime/pipe/p2p)\.py", _ANY),
    (WaitKind.COLLECTIVE, r"torch/distributed/(?:distributed_c10d|_functional_collectives|c10d_logger)\.py", r"(?!wrapper|__|_exception_logger|_time_logger|get_|is_|init|new_|_get)\w*(?:all_?reduce|reduce|broadcast|gather|scatter|all_?to_?all|barrier|wait_tensor|_object_list|_object)\w*"),
    (WaitKind.COLLECTIVE, r"torch/distributed/distributed_c10d\.py", r"wait"),
    (WaitKind.COLLECTIVE, r"torch/distributed/utils\.py", r"_verify_param_shape_across_processes|_sync_\w+"),
    (WaitKind.COLLECTIVE, r"torch/nn/parallel/distributed\.py", r"_distributed_broadcast_coalesced|_match_unused_params_allreduce|_sync_buffers"),
    (WaitKind.COLLECTIVE, r"torch/distributed/(?:nn/functional|fsdp/_runtime_utils|algorithms/)", _ANY),
    (WaitKind.COLLECTIVE, r"torch/distributed/rpc/api\.py", r"_wait_all_workers|_all_gather|_barrier"),
    (WaitKind.POINT_TO_POINT, r"torch/distributed/rpc/api\.py", r"rpc_sync|_invoke_rpc"),
    (WaitKind.COLLECTIVE, r"device_communicators/pynccl(?:_wrapper)?\.py", r"\w*(?:[aA]ll_?[rR]educe|[aA]ll_?[gG]ather|[rR]educe_?[sS]catter|[bB]roadcast)\w*"),
    (WaitKind.COLLECTIVE, r"deepspeed/comm/", r"\w*(?:reduce|broadcast|gather|scatter|all_to_all|barrier)\w*"),
    (WaitKind.DATA, r"torch/utils/data/dataloader\.py", r"_?(?:next_data|get_data|try_get_data)|__next__"),
    (WaitKind.DATA, r"torch/utils/data/_utils/worker\.py", r"_worker_loop"),
    (WaitKind.DEVICE, r"torch/(?:cuda|xpu|npu)/", r"synchronize|wait_event|wait_stream|current_stream"),
    (WaitKind.DEVICE, r"torch/_tensor(?:_str)?\.py", r"tolist|__array__|__format__|__repr__|_str|_str_intern"),
    (WaitKind.DEVICE, r"torch/(?:amp|cuda/amp)/grad_scaler\.py", r"_maybe_opt_step"),
    (WaitKind.DEVICE, r"jax/_src/(?:array|api)\.py", r"_value|block_until_ready|_npy_value"),
    (WaitKind.DEVICE, r"jax/_src/interpreters/pxla\.py", r"__call__"),
    (WaitKind.COLLECTIVE, r"jax/experimental/multihost_utils\.py", r"sync_global_devices|process_allgather|broadcast_one_to_all|assert_equal"),
    (WaitKind.STORE, r"jax/_src/distributed\.py", r"initialize"),
    (WaitKind.COMPILE, r"jax/_src/(?:compiler|compilation_cache)\.py", _ANY),
    (WaitKind.COMPILE, r"torch/(?:_dynamo|_inductor|fx|_functorch)/", _ANY),
    (WaitKind.COMPILE, r"triton/(?:compiler|runtime)/", _ANY),
    (WaitKind.COMPILE, r"torch/utils/cpp_extension\.py", _ANY),
    (WaitKind.CHILD, r"multiprocessing/(?:popen_\w+|process)\.py", r"poll|wait|join"),
    (WaitKind.CHILD, r"subprocess\.py", r"wait|_wait|communicate|_communicate|_try_wait"),
    (WaitKind.LOCK, r"threading\.py", r"acquire|wait|wait_for|__enter__|join|_wait_for_tstate_lock|_acquire_restore"),
    (WaitKind.LOCK, r"multiprocessing/synchronize\.py", r"acquire|wait|__enter__"),
    (WaitKind.LOCK, r"(?:queue|multiprocessing/queues)\.py", r"get|put"),
    (WaitKind.LOCK, r"concurrent/futures/_base\.py", r"result|wait|as_completed"),
    (WaitKind.FILE_LOCK, r"(?:filelock|portalocker|fasteners)/", r"acquire|_acquire|__enter__|lock"),
    (WaitKind.IO, r"(?:socket|ssl|http/client|urllib/\w+|multiprocessing/connection|selectors|shutil)\.py", _ANY),
    (WaitKind.IO, r"(?:urllib3|requests|botocore|boto3|s3fs|fsspec|aiohttp|gcsfs|google/cloud)/", _ANY),
)  # fmt: skip

# Schedules that wait for the works of their messages in their own loop: until 2.7 that of PyTorch has no function of its own for it.
SCHEDULES = _rows(
    (WaitKind.POINT_TO_POINT, r"torch/distributed/pipelining/schedules\.py", _ANY),
)  # fmt: skip

# Turning objects into bytes and back for a collective that carries objects: work of the host, below the frame of the collective.
PICKLING = _rows(
    ("pickle", r"torch/distributed/distributed_c10d\.py", r"_object_to_tensor|_tensor_to_object"),
)  # fmt: skip

# Debuggers and consoles that ask for a command: whoever is in one waits for somebody at a terminal.
PROMPTS = _rows(
    ("prompt", r"(?:pdb|bdb|cmd|code)\.py", _ANY),
    ("prompt", r"(?:IPython/(?:terminal|core/debugger)|ipdb/|prompt_toolkit/|pudb/|remote_pdb)", _ANY),
)  # fmt: skip

# Loops of servers that wait for a request: whoever is in one waits for clients of the job, of which none need come.
SERVERS = _rows(
    ("server", r"socketserver\.py", r"serve_forever"),
    ("server", r"socket\.py", r"accept"),
    ("server", r"multiprocessing/(?:connection|managers)\.py", r"accept|serve_forever"),
    ("server", r"asyncio/base_events\.py", r"serve_forever"),
    ("server", r"(?:uvicorn|hypercorn|gunicorn|waitress|cheroot|daphne)/", r"run|serve|serve_forever|main_loop|loop"),
    ("server", r"aiohttp/web\.py", r"run_app|_run_app"),
    ("server", r"grpc/(?:_server|aio/_server)\.py", r"wait_for_termination"),
    ("server", r"vllm/v1/engine/core\.py", r"_process_input_queue"),
)  # fmt: skip

# What a thread without a telling Python frame waits in, by the native frames that some samplers show, mangled or not. `wait()` of a
# work handle (`isend`, `irecv`, `async_op=True`), gradients that hooks of compiled code reduce, and `with lock:` have no other.
_C10D = r"(?:c10d::|_ZNK?4c10d\d+)"
NATIVE_WAITS = (
    (WaitKind.POINT_TO_POINT, re.compile(_C10D + r"ProcessGroup\w*?(?:::)?(?:Send|Recv)Work")),
    (WaitKind.STORE, re.compile(_C10D + r"\w*Store(?:::|\d)|gloo::rendezvous::|_ZNK?4gloo10rendezvous")),
    (
        WaitKind.COLLECTIVE,
        re.compile(_C10D + r"(?:ProcessGroup|Work(?:::|\d))|p?nccl[A-Z]\w*\Z|groupLaunch\Z|bootstrap[A-Z]\w*\Z"),
    ),
    (
        WaitKind.COLLECTIVE,
        re.compile(r"P?MPI_(?:All(?:reduce|gatherv?|toall[vw]?)|Reduce\w*|Bcast|Barrier|Gatherv?|Scatterv?)\Z"),
    ),
    (WaitKind.POINT_TO_POINT, re.compile(r"P?MPI_(?:S?send|Sendrecv|M?recv|Probe)\Z", re.IGNORECASE)),
    (WaitKind.DEVICE, re.compile(r"(?:cu|cuda|hip)(?:Stream|Event|Device|Ctx)Synchronize\w*\Z")),
    (WaitKind.FILE_LOCK, re.compile(r"(?:flock|lockf(?:64)?|fcntl_(?:flock|lockf)\w*)\Z")),
    (WaitKind.LOCK, re.compile(r"(?:(?:lock_)?PyThread_acquire_lock\w*|r?lock_acquire\w*|acquire_timed|_?PyMutex_Lock\w*)\Z")),
)

# A function of a program of its own around NCCL that waits for the device: for the collective that it names.
AROUND_NCCL = re.compile(r"(?:\w+::)*\w*[Nn](?:ccl|CCL)_?(?:[Aa]ll_?[RrGgTt]|[Rr]educe|[Bb]roadcast|[Bb]arrier)\w*")

# Frames that only run while code is compiled. Compiled code itself runs below frames of the same packages (`eval_frame.py`,
# `runtime_wrappers.py`, `output_code.py`), which are no sign of a compilation.
COMPILING = _rows(
    ("compile", r"torch/_dynamo/(?:convert_frame|symbolic_convert|output_graph|bytecode_\w+|guards|variables/\w+|repro/\w+|backends/(?:inductor|registry))\.py", _ANY),
    ("compile", r"torch/_inductor/(?:compile_fx\w*|graph|scheduler|codecache|lowering|async_compile|cpp_builder|select_algorithm|autotune_process|ir|fx_passes/\w+|codegen/\w+|compile_worker/\w+)\.py", _ANY),
    ("compile", r"torch/_inductor/runtime/(?:triton_heuristics|compile_tasks|coordinate_descent_tuner)\.py", r"precompile|_precompile\w*|autotune\w*|bench|benchmark_all_configs|coordinate_descent_tuning|_?worker_compile\w*"),
    ("compile", r"torch/_functorch/(?:aot_autograd|partitioners|_aot_autograd/(?:graph_compile|dispatch_and_compile_graph|traced_function_transforms|jit_compile_runtime_wrappers))\.py", r"(?!forward\b)\w*(?:compile|trace|partition|graph|dispatch)\w*"),
    ("compile", r"triton/(?:compiler/|backends/|runtime/(?:build|jit|autotuner)\.py)", r"\w*(?:compile|build|make_\w+|_bench|benchmark|do_bench|add_stages)\w*|_do_compile"),
    ("compile", r"torch/utils/cpp_extension\.py", r"load\w*|_jit_compile|_write_ninja\w*|_run_ninja_build|verify_ninja_availability"),
    ("compile", r"deepspeed/ops/op_builder/", r"load|jit_load"),
    ("compile", r"numba/core/", r"compile\w*|_compile\w*"),
    ("compile", r"jax/_src/compiler\.py", r"\w*compile\w*"),
)  # fmt: skip

# Native frames of the garbage collector (CPython 3.8 to 3.14, Modules/gcmodule.c and Python/gc.c), as samplers with native frames show them.
COLLECTING = _rows(
    ("collect", r".*", r"gc_collect\w*|collect_(?:main|with_callback|generations)|_?PyGC_Collect\w*|deduce_unreachable|subtract_refs|update_refs|visit_(?:decref|reachable)|move_unreachable|delete_garbage|finalize_garbage|_Py_RunGC"),
    ("collect", r"accelerate/utils/memory\.py", r"release_memory|clear_device_cache"),
)  # fmt: skip
COLLECTING_WORDS = frozenset({"gc", "garbage"})

# Read innermost frame first: the first frame that has a stage decides, except where `OVERRIDES` says that an outer one wins.
STAGES = _rows(
    (StageName.CHECKPOINT, r"torch/serialization\.py", _ANY),
    (StageName.CHECKPOINT, r"torch/distributed/(?:checkpoint|_shard/checkpoint)/", _ANY),
    (StageName.CHECKPOINT, r"safetensors/", r"save\w*|load\w*|_flatten|serialize\w*"),
    (StageName.CHECKPOINT, r"(?:megatron/(?:training/checkpointing|core/dist_checkpointing)|deepspeed/(?:runtime/checkpoint_engine|checkpoint))", _ANY),
    (StageName.CHECKPOINT, r"deepspeed/runtime/engine\.py", r"(?:save|load|_save|_load)_\w*checkpoint\w*|save_16bit_model"),
    (StageName.CHECKPOINT, _LIGHTNING + r"(?:callbacks/model_checkpoint|plugins/io|trainer/connectors/checkpoint_connector)", _ANY),
    (StageName.CHECKPOINT, _LIGHTNING + r"(?:trainer/trainer|strategies/\w+)\.py", r"(?:save|load)_checkpoint"),
    (StageName.CHECKPOINT, _FABRIC + r"(?:fabric|strategies/\w+)\.py", r"save|load|load_raw|(?:save|load)_checkpoint"),
    (StageName.CHECKPOINT, _FABRIC + r"plugins/io/", _ANY),
    (StageName.CHECKPOINT, r"accelerate/(?:checkpointing|accelerator)\.py", r"(?:save|load)_\w+"),
    (StageName.CHECKPOINT, r"orbax/checkpoint/", _ANY),
    (StageName.CHECKPOINT, r"composer/(?:checkpoint/|utils/checkpoint|callbacks/checkpoint_saver)", _ANY),
    (StageName.CHECKPOINT, r"torchtitan/(?:components/)?checkpoint", _ANY),
    (StageName.CHECKPOINT, r"transformers/(?:trainer|modeling_utils)\.py", r"_save_\w*checkpoint\w*|_save_optimizer_and_scheduler|save_model|save_pretrained|_save"),
    (StageName.DATA, r"torch/utils/data/", _ANY),
    (StageName.DATA, r"(?:datasets|webdataset|streaming|nvidia/dali|torchdata|tensorflow_datasets|megatron/energon|litdata|mosaicml_streaming|grain|seqio)/", _ANY),
    (StageName.DATA, r"(?:megatron/core/datasets|megatron/legacy/data|accelerate/data_loader|deepspeed/runtime/dataloader)", _ANY),
    (StageName.DATA, _LIGHTNING + r"loops/fetchers\.py", _ANY),
    (StageName.DATA, r"transformers/trainer\.py", r"get_batch_samples|_get_num_items_in_batch|_prepare_inputs?|get_\w+_dataloader"),
    (StageName.DATA, r"deepspeed/runtime/pipe/engine\.py", r"_exec_load_micro_batch|_next_batch"),
    (StageName.EVAL, _LIGHTNING + r"loops/evaluation_loop\.py", _ANY),
    (StageName.EVAL, r"composer/trainer/trainer\.py", r"_?eval\w*"),
    (StageName.EVAL, r"transformers/trainer\w*\.py", r"evaluate|evaluation_loop|prediction_loop|prediction_step|predict|_evaluate"),
    (StageName.EVAL, r"megatron/training/training\.py", r"evaluate\w*"),
    (StageName.CALLBACKS, _LIGHTNING + r"(?:callbacks|loggers)/", _ANY),
    (StageName.CALLBACKS, _LIGHTNING + r"trainer/call\.py", r"_call_callback\w*"),
    (StageName.CALLBACKS, r"transformers/(?:trainer_callback|integrations)", _ANY),
    # What is not saved or evaluated there is the loss that it logs.
    (StageName.CALLBACKS, r"transformers/trainer\.py", r"_maybe_log_save_evaluate"),
    (StageName.CALLBACKS, r"composer/(?:callbacks|loggers|core/engine\.py)", _ANY),
    (StageName.CALLBACKS, r"(?:wandb|mlflow|tensorboard|torch/utils/tensorboard|comet_ml|neptune)/", _ANY),
    (StageName.OPTIMIZER, r"torch/optim/", _ANY),
    (StageName.OPTIMIZER, r"torch/nn/utils/clip_grad\.py", _ANY),
    (StageName.OPTIMIZER, r"torch/(?:amp|cuda/amp)/grad_scaler\.py", r"step|unscale_|update|_unscale_grads_|_maybe_opt_step"),
    (StageName.OPTIMIZER, r"(?:apex/optimizers|bitsandbytes/optim|deepspeed/ops/adam|megatron/core/optimizer|torch/distributed/optim)", _ANY),
    (StageName.OPTIMIZER, r"deepspeed/runtime/(?:engine|zero/\w+|bf16_optimizer|fp16/\w+)\.py", r"step|_take_model_step|_optimizer_step|unscale_and_clip_grads"),
    (StageName.OPTIMIZER, r"deepspeed/runtime/pipe/engine\.py", r"_exec_optimizer_step"),
    (StageName.BACKWARD, r"torch/autograd/", r"backward|grad|_engine_run_backward|_make_grads"),
    (StageName.BACKWARD, r"torch/_tensor\.py", r"backward"),
    (StageName.BACKWARD, r"(?:deepspeed/runtime/(?:engine|zero/\w+|pipe/engine)|megatron/core/pipeline_parallel/schedules)\.py", r"backward\w*|_exec_(?:backward|reduce)\w*|allreduce_gradients|backward_step"),
    # Parameters are gathered by hooks of the forward, or by the optimizer: an outer frame tells.
    (StageName.BACKWARD, r"megatron/core/distributed/(?:finalize_model_grads|distributed_data_parallel|param_and_grad_buffer)", r"(?!\w*param_sync|enable_forward|disable_forward|_make_forward)\w*"),
    (StageName.FORWARD, r"megatron/core/pipeline_parallel/p2p_communication\.py", r"(?:send|recv)_forward"),
    (StageName.BACKWARD, r"megatron/core/pipeline_parallel/p2p_communication\.py", r"(?:send|recv)_backward"),
    (StageName.FORWARD, r"deepspeed/runtime/pipe/engine\.py", r"_exec_(?:send|recv)_activations"),
    (StageName.BACKWARD, r"deepspeed/runtime/pipe/engine\.py", r"_exec_(?:send|recv)_grads"),
    (StageName.BACKWARD, r"torch/distributed/fsdp/_runtime_utils\.py", r"_post_backward\w*|_reduce_grad\w*|_pre_backward\w*"),
    (StageName.INIT, r"torch/nn/parallel/distributed\.py", r"__init__|_ddp_init_helper|_sync_module_states|_verify_\w*"),
    (StageName.BACKWARD, r"torch/distributed/(?:algorithms/ddp_comm_hooks|algorithms/_comm_hooks)", _ANY),
    (StageName.FORWARD, r"torch/nn/(?!utils/)", _ANY),
    (StageName.FORWARD, r"torch/distributed/fsdp/", r"_pre_forward\w*|forward|_unshard\w*|_post_forward\w*"),
    (StageName.FORWARD, r"megatron/core/(?:transformer|models|tensor_parallel)/", _ANY),
    (StageName.FORWARD, r"megatron/core/pipeline_parallel/schedules\.py", r"forward_step\w*"),
    (StageName.FORWARD, r"deepspeed/runtime/(?:engine|pipe/engine)\.py", r"forward|_exec_forward\w*"),
    (StageName.INIT, r"torch/distributed/(?:distributed_c10d|rendezvous|device_mesh)\.py", r"init_process_group|rendezvous|new_group|_new_group_with_tag|new_subgroups\w*|split_group|_store_based_barrier|init_device_mesh|_new_process_group_helper"),
    (StageName.INIT, r"torch/distributed/elastic/", _ANY),
    (StageName.INIT, r"(?:deepspeed/__init__|megatron/training/initialize|accelerate/state)\.py", r"initialize\w*|__init__|_initialize\w*"),
    (StageName.INIT, r"deepspeed/comm/", r"init_distributed|__init__|init_process_group"),
    (StageName.INIT, r"deepspeed/runtime/(?:engine|pipe/(?:engine|module)|zero/\w+)\.py", r"__init__|_configure_\w+|_broadcast_model"),
    (StageName.INIT, r"accelerate/accelerator\.py", r"prepare|_?prepare_\w+"),
)  # fmt: skip

# An outer stage that takes over the inner one: forward inside evaluation is evaluation, recomputed forward is backward.
OVERRIDES = frozenset(
    {
        (StageName.FORWARD, StageName.EVAL),
        (StageName.FORWARD, StageName.BACKWARD),
        (StageName.FORWARD, StageName.CALLBACKS),
        (StageName.BACKWARD, StageName.OPTIMIZER),
    }
)


# Words in the job's own function and file names, innermost application frame first. A person reading the stack would use
# them too. `alone` words tell the stage by themselves; otherwise one of `verbs` must meet one of `nouns` (`load_batch`, but not
# `train_batch`).
@dataclass(frozen=True, slots=True)
class Words:
    """Words of one stage."""

    stage: StageName
    alone: frozenset[str]
    verbs: frozenset[str] = frozenset()
    nouns: frozenset[str] = frozenset()


def _words(stage: StageName, alone: str, verbs: str = "", nouns: str = "") -> Words:
    return Words(stage, frozenset(alone.split()), frozenset(verbs.split()), frozenset(nouns.split()))


WORDS = (
    _words(
        StageName.CHECKPOINT,
        "checkpoint checkpoints checkpointing checkpointer ckpt ckpts savepoint",
        "save saving dump persist write flush export restore upload serialize",
        "model models state states weights weight params parameters optimizer snapshot snapshots artifact artifacts shard shards save",
    ),
    _words(StageName.EVAL, "eval evaluate evaluation evaluator validate validation validator"),
    _words(
        StageName.DATA,
        "dataloader dataloaders dataset datasets prefetch prefetcher collate collator tokenize tokenizer datapipe datamodule",
        "load loading get next read fetch prepare build make iter iterate stream pull open download decode parse refill receive wait",
        "data batch batches minibatch minibatches sample samples example examples record records shard shards token tokens corpus image images loader input inputs file files documents sequences prompts texts",
    ),
    # Stages of a pipeline receive microbatches and wait for them: that is no data.
    _words(StageName.DATA, "", "load loading next read fetch prepare build pull download", "microbatch microbatches"),
    _words(
        StageName.BACKWARD,
        "backward backprop gradients grads",
        "sync average reduce allreduce synchronize accumulate flush",
        "grad gradient bucket buckets",
    ),
    _words(StageName.OPTIMIZER, "optimizer optim optimize", "update apply clip step", "params parameters weights grad norm"),
    _words(StageName.FORWARD, "forward"),
    _words(StageName.CALLBACKS, "callback callbacks hook hooks logging logger telemetry", "log report publish emit push send", "metrics metric stats stat statistics scalars progress summary summaries losses"),
    _words(StageName.CALLBACKS, "", "on", "start begin end"),
    _words(StageName.INIT, "init initialize setup bootstrap rendezvous"),
)  # fmt: skip

# Python's iterator protocol in the job's own code: whoever drives it is fetching something.
ITERATOR_METHODS = frozenset({"__next__", "__getitem__", "__getitems__", "__anext__"})

# Kernel functions (`wchan`) that tell what a thread without telling Python frames waits for; locks of files before other waits of
# their file systems. Sources: Linux 4.18 to 6.12, fs/locks.c, fs/lockd, fs/nfs, fs/ceph, fs/smb; Lustre 2.15, ldlm_flock.c.
WCHANS = (
    (WaitKind.FILE_LOCK, re.compile(r"(?:locks_lock_inode_wait|(?:flock|posix)_lock_inode_wait|posix_lock_file_wait|fcntl_setlk|do_lock_file_wait|flock_lock_file_wait|locks_mandatory_area|__break_lease|nlmclnt_(?:lock|block|wait)|nlm_wait_on_grace|nfs4?_(?:proc_|retry_|wait_)?\w*set_?lk|do_setlk|do_flock|ldlm_flock_completion_ast|ll_file_flock|ceph_(?:lock_wait_for_completion|flock|lock)|cifs_(?:posix_)?lock_set|cifs_setlk|dlm_posix_lock)")),
    (WaitKind.IO, re.compile(r"ll_|.*(?:pipe_(?:read|write)|poll_schedule|ep_poll|epoll_wait|wait_for_partner|wait_woken|fifo_open|nfs|rpc_wait|fuse|ptlrpc|cl_sync|osc_|gpfs|mmfs|jbd2|io_schedule|folio_wait|wait_on_page|unix_stream|tcp_recv|inet_|sk_wait|wait_for_data)")),
    (WaitKind.SLEEP, re.compile(r".*nanosleep")),
    (WaitKind.CHILD, re.compile(r"do_wait")),
    (WaitKind.LOCK, re.compile(r"futex")),
)  # fmt: skip
