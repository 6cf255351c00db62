-- The tables every source is normalised into. Facts only: one fact a row, each with the artefact it came from
-- (source_id) and a locator inside it (entry, line or event number). Times are nanoseconds on the source's own clock.
-- `-- table:` and the comment behind each column are the documentation: docs/case.md is generated from them.

-- table: One artefact that was looked at.
CREATE TABLE sources (
    source_id BIGINT PRIMARY KEY,   -- number of the artefact in this case, in path order
    path VARCHAR NOT NULL,          -- where it lies in the bundle, or the path given by the user
    kind VARCHAR,                   -- format that was recognised; null when none was
    parser VARCHAR,                 -- ingester that read it
    host VARCHAR,                   -- host it was collected on, when known
    rank INTEGER,                   -- rank it belongs to, when known
    rank_method VARCHAR,            -- where the rank was read: content, manifest, path, guessed
    captured_ns BIGINT,             -- realtime clock when it was captured (from the manifest); null when unknown
    modified_ns BIGINT,             -- date of a file that no manifest describes: it was captured at this time or before
    sha256 VARCHAR,                 -- digest of the stored bytes
    bytes BIGINT,                   -- stored size
    status VARCHAR NOT NULL,        -- ok, partial, rejected or ignored
    rows BIGINT NOT NULL,           -- facts taken from it
    reason VARCHAR                  -- why it is not ok
);

-- table: Something in an artefact that could not be read, with its position.
CREATE TABLE ingest_warnings (
    source_id BIGINT,               -- artefact; null for the bundle itself
    path VARCHAR,                   -- artefact's path
    locator VARCHAR,                -- entry, line or byte position inside it
    message VARCHAR NOT NULL        -- what was wrong, in one sentence
);

-- table: Per rank (or host) and kind of evidence: is it there, and if not, why not.
CREATE TABLE coverage (
    source_id BIGINT,               -- artefact that says so (the manifest)
    scope VARCHAR NOT NULL,         -- rank or host
    host VARCHAR,                   -- host of the row
    rank INTEGER,                   -- rank of the row; null for a host
    kind VARCHAR NOT NULL,          -- collector id or kind of evidence
    status VARCHAR NOT NULL,        -- ok, partial, timeout, permission, not_found, not_configured, unsupported, killed, skipped_by_policy, node_unreachable
    reason VARCHAR,                 -- in words
    begin_ns BIGINT,                -- realtime clock when the collector started
    end_ns BIGINT                   -- realtime clock when it ended
);

-- table: Configuration of the job, each value with the place it was read.
CREATE TABLE job_config (
    source_id BIGINT,               -- artefact it was read from
    host VARCHAR,                   -- host of the value, when it has one
    rank INTEGER,                   -- rank of the value, when it has one
    key VARCHAR NOT NULL,           -- name, for example world_size or env.NCCL_DEBUG
    value VARCHAR,                  -- value as text
    confidence VARCHAR              -- read, guessed, or given (a file that the user named)
);

-- table: Ranks, as discovered on the hosts.
CREATE TABLE ranks (
    source_id BIGINT,               -- artefact
    rank INTEGER NOT NULL,          -- global rank
    host VARCHAR,                   -- host
    local_rank INTEGER,             -- rank within the host
    gpu VARCHAR,                    -- CUDA device or PCI bus id
    pid BIGINT,                     -- process id on the host; null when there is no process
    state VARCHAR,                  -- alive, absent, zombie or unknown
    rank_method VARCHAR,            -- environment variable or guess that gave the rank
    exit_signal INTEGER,            -- signal that ended the process, when known
    exit_code INTEGER               -- exit code of the process, when known
);

-- table: What shows which rank a process is, besides what is its own: commands, launchers, environments, NCCL.
CREATE TABLE process_ranks (
    source_id BIGINT,               -- artefact
    locator VARCHAR,                -- line=number
    host VARCHAR,                   -- host
    pid BIGINT,                     -- process; null for the only one of its host
    rank INTEGER,                   -- global rank; null until the order of nodes tells it
    local_rank INTEGER,             -- rank within the host
    node INTEGER,                   -- number of the host among those of the job
    per_node INTEGER,               -- ranks of each host
    method VARCHAR NOT NULL         -- command, launcher, environment, log or nccl
);

-- table: Hosts of a job in the order of their ranks, as a list of them has it.
CREATE TABLE nodes (
    source_id BIGINT,               -- artefact
    host VARCHAR NOT NULL,          -- host
    node INTEGER NOT NULL,          -- place in the list, 0 first
    slots INTEGER                   -- ranks of the host; null where the list does not say
);

-- table: GPUs, NICs and ports of a host.
CREATE TABLE devices (
    source_id BIGINT,               -- artefact
    host VARCHAR,                   -- host
    device VARCHAR NOT NULL,        -- name, for example mlx5_0 or GPU-0
    kind VARCHAR NOT NULL,          -- gpu, nic or port
    parent VARCHAR,                 -- device it belongs to
    model VARCHAR,                  -- product, as the device names itself
    uuid VARCHAR,                   -- UUID of a GPU, GUID of a NIC
    numa_node INTEGER,              -- NUMA node
    pci VARCHAR,                    -- PCI bus id
    rank INTEGER,                   -- rank that uses it
    rate_bytes_per_s BIGINT,        -- nominal rate in bytes per second
    state VARCHAR                   -- reported state
);

-- table: Links between devices.
CREATE TABLE links (
    source_id BIGINT,               -- artefact
    host VARCHAR,                   -- host
    device_a VARCHAR NOT NULL,      -- one end
    device_b VARCHAR NOT NULL,      -- other end
    kind VARCHAR,                   -- pcie, nvlink, ib or ethernet
    path VARCHAR,                   -- switch path
    rate_bytes_per_s BIGINT         -- nominal rate in bytes per second
);

-- table: What one rank says of one of its process groups (Flight Recorder pg_config and pg_status).
CREATE TABLE group_views (
    source_id BIGINT,               -- artefact
    rank INTEGER,                   -- rank whose view it is
    pg_id INTEGER,                  -- number of the group in that process; null when not reported
    pg_name VARCHAR,                -- group name; null when not reported
    description VARCHAR,            -- group description
    members INTEGER[],              -- global ranks in order; null when not reported
    last_enqueued BIGINT,           -- pg_status: last enqueued number; -1 for none, null when not reported
    last_started BIGINT,            -- pg_status: last started number
    last_completed BIGINT,          -- pg_status: last completed number
    locator VARCHAR                 -- place in the artefact
);

-- table: Communicators over all ranks; derived from group_views and operations.
CREATE TABLE communicators (
    communicator VARCHAR PRIMARY KEY, -- stable label, for example 0:default_pg
    generation INTEGER,             -- counts groups that reuse a name with other members
    pg_name VARCHAR,                -- group name shared by the members
    description VARCHAR,            -- group description
    backend VARCHAR,                -- nccl, gloo, ...
    size INTEGER,                   -- number of members
    method VARCHAR NOT NULL,        -- reported (pg_config), siblings (as groups alike), world (default group), or peers (ranks seen using it)
    confidence VARCHAR NOT NULL     -- read, inferred or assumed
);

-- table: Ordered members of a communicator.
CREATE TABLE members (
    communicator VARCHAR NOT NULL,  -- communicator
    position INTEGER NOT NULL,      -- group-local rank
    rank INTEGER NOT NULL,          -- global rank
    pg_id INTEGER                   -- number of the group in that rank's process
);

-- table: One collective or point-to-point call of one rank.
CREATE TABLE operations (
    source_id BIGINT,               -- artefact
    locator BIGINT,                 -- entry number in the artefact
    snapshot INTEGER,               -- 0 for the first dump of a rank, 1 for a later one, ...
    rank INTEGER,                   -- rank that made the call
    host VARCHAR,                   -- its host
    pg_id INTEGER,                  -- number of the group in that process
    pg_name VARCHAR,                -- group name
    communicator VARCHAR,           -- communicator; filled by alignment, null before
    backend VARCHAR,                -- nccl, gloo, ...
    sequence BIGINT,                -- collective_seq_id, or p2p_seq_id for point to point
    op_id BIGINT,                   -- counter over collectives and point-to-point calls of the group
    pair_number BIGINT,             -- number among the calls of this communicator, peer and direction, from 1; pairs a send with its receive
    record_id BIGINT,               -- monotonic number in the process
    group_call BIGINT,              -- group-call id shared by coalesced operations
    kind VARCHAR,                   -- all_reduce, broadcast, send, ...
    is_p2p BOOLEAN,                 -- point to point
    peer INTEGER,                   -- group-local peer of a point-to-point call
    root INTEGER,                   -- root of a rooted collective, when recorded
    count BIGINT,                   -- elements in
    dtype VARCHAR,                  -- element types in, comma separated
    bytes BIGINT,                   -- bytes in, when the type's width is known
    input_sizes VARCHAR,            -- shapes in as JSON
    output_sizes VARCHAR,           -- shapes out as JSON
    splits VARCHAR,                 -- split list as JSON, when recorded
    algorithm VARCHAR,              -- ring, tree, ...
    protocol VARCHAR,               -- ll, ll128, simple
    stream BIGINT,                  -- stream
    call_path BIGINT,               -- call path in call_paths; null when no frames were recorded
    thread VARCHAR,                 -- thread that made the call
    graph_captured BOOLEAN,         -- replayed from a captured graph
    enqueued_ns BIGINT,             -- host enqueued it (realtime clock of the host)
    entered_ns BIGINT,              -- host entered the library call
    returned_ns BIGINT,             -- the library call returned: enqueued, not done; null while inside, and when the moment was not taken
    inside BOOLEAN,                 -- the library call has not returned; null when the source does not tell
    device_start_ns BIGINT,         -- kernel or proxy start (discovered by the watchdog for Flight Recorder)
    proxy_end_ns BIGINT,            -- proxy finished
    device_end_ns BIGINT,           -- kernel end (discovered by the watchdog for Flight Recorder)
    duration_ns BIGINT,             -- device duration, when timing was on
    retired BOOLEAN,                -- the recorder let it go: done, or failed
    timeout_ns BIGINT,              -- watchdog timeout
    state VARCHAR NOT NULL          -- pending, started or done, after the repairs of the format's page
);

-- table: One flow of one operation.
CREATE TABLE flows (
    source_id BIGINT,               -- artefact
    locator BIGINT,                 -- record number
    rank INTEGER,                   -- rank
    communicator VARCHAR,           -- communicator
    sequence BIGINT,                -- operation
    channel INTEGER,                -- channel
    queue_pair VARCHAR,             -- queue pair that it was seen on; the first of several
    peer INTEGER,                   -- peer, as rank in the communicator
    direction VARCHAR,              -- send or recv
    local_nic VARCHAR,              -- local NIC of that queue pair
    remote_nic VARCHAR,             -- remote NIC or GID of that queue pair
    bytes BIGINT,                   -- bytes
    start_ns BIGINT,                -- first byte
    end_ns BIGINT                   -- last byte; null while open
);

-- table: Counters of one flow at one time.
CREATE TABLE chunk_states (
    source_id BIGINT,               -- artefact
    locator BIGINT,                 -- record number
    time_ns BIGINT,                 -- sample time
    rank INTEGER,                   -- rank
    communicator VARCHAR,           -- communicator
    sequence BIGINT,                -- operation
    channel INTEGER,                -- channel
    peer INTEGER,                   -- peer rank
    direction VARCHAR,              -- send or recv
    pair_number BIGINT,             -- of a message: number of the call with this peer in this direction; null where not stated
    total BIGINT,                   -- chunks of the flow
    posted BIGINT,                  -- posted
    gpu_ready BIGINT,               -- handed over by the GPU
    transmitted BIGINT,             -- posted to the NIC
    done BIGINT,                    -- completed by the NIC
    received BIGINT,                -- arrived
    flushed BIGINT,                 -- made visible to the receiver's GPU
    consumed BIGINT,                -- consumed by the GPU
    wait_gpu_ns BIGINT,             -- time spent waiting for the GPU
    wait_credit_ns BIGINT,          -- time spent waiting for the peer's credit
    wait_nic_ns BIGINT,             -- time spent waiting for the NIC
    wait_wire_ns BIGINT,            -- time the receiver waited for the wire
    wait_flush_ns BIGINT,           -- time the receiver waited for the flush
    wait_consume_ns BIGINT,         -- time the receiver waited for its GPU to consume
    stuck_ns BIGINT                 -- time since the last change
);

-- table: What one process says of one NCCL communicator, as its log stood last (shim log).
CREATE TABLE communicator_states (
    source_id BIGINT,               -- artefact
    locator BIGINT,                 -- slot in the log
    rank INTEGER,                   -- rank whose process it is
    communicator VARCHAR,           -- label, the same on all members; holds a process and slot when the identity is local
    parent VARCHAR,                 -- label of the communicator it was split from
    comm_id VARCHAR,                -- NCCL's own identity, as its profiler tells it
    name VARCHAR,                   -- name given by the program
    state VARCHAR,                  -- starting, ready, failed, finalized, destroyed, aborted, revoked
    group_rank INTEGER,             -- rank of the process in it
    size INTEGER,                   -- members
    color INTEGER,                  -- color of the split that made it
    device INTEGER,                 -- CUDA device
    nodes INTEGER,                  -- hosts it spans, as the profiler tells
    graph_captured BOOLEAN,         -- used under stream capture: replays make no call
    init_entered_ns BIGINT,         -- its init call was entered
    init_returned_ns BIGINT,        -- and returned; null while inside
    closed_ns BIGINT,               -- destroy or abort was entered
    operations BIGINT,              -- operations enqueued: op_id of the last one
    finished BIGINT,                -- of these, seen to end by the profiler; null without it
    last_entered_ns BIGINT,         -- last operation entered
    last_returned_ns BIGINT,        -- and returned; null while inside, and when the moment was not taken
    inside_kind VARCHAR,            -- call that a thread is inside now
    async_error INTEGER             -- last error of ncclCommGetAsyncError
);

-- table: One call that made, changed or ended an NCCL communicator (shim log).
CREATE TABLE communicator_events (
    source_id BIGINT,               -- artefact
    locator BIGINT,                 -- record number
    rank INTEGER,                   -- rank
    communicator VARCHAR,           -- communicator; the new one for those that make one
    kind VARCHAR NOT NULL,          -- init_rank, split, destroy, abort, async_error, ...
    thread VARCHAR,                 -- thread that made the call
    entered_ns BIGINT,              -- entered
    returned_ns BIGINT,             -- returned; null while inside
    result INTEGER,                 -- ncclResult_t; null while inside
    error INTEGER                   -- async_error: the ncclResult_t it stated
);

-- table: Queue pair to peer map.
CREATE TABLE queue_pairs (
    source_id BIGINT,               -- artefact
    locator BIGINT,                 -- record number
    rank INTEGER,                   -- rank
    host VARCHAR,                   -- host
    queue_pair VARCHAR NOT NULL,    -- local queue pair number
    generation INTEGER,             -- counts reuse of the number
    nic VARCHAR,                    -- local NIC
    port INTEGER,                   -- local port
    remote_queue_pair VARCHAR,      -- remote number
    remote_nic VARCHAR,             -- remote NIC or GID
    peer INTEGER,                   -- peer: as rank in the communicator where there is one, else as rank of the job
    communicator VARCHAR,           -- communicator of the flow that it carries; null when not known or several
    channel INTEGER,                -- channel of that flow
    direction VARCHAR,              -- of that flow: send, or recv for the end that grants its buffers
    number BIGINT,                  -- local number as the device gave it
    gid VARCHAR,                    -- own GID as an address, or LID; matches remote_nic of the other end
    timeout INTEGER,                -- acknowledgement timeout: 4.096 us x 2^timeout
    retry_count INTEGER,            -- retries before an error
    created_ns BIGINT,              -- made
    connected_ns BIGINT,            -- ready to send
    ended BOOLEAN                   -- destroyed, or its number was taken by another one
);

-- table: Work-request accounting of one queue pair at one time.
CREATE TABLE wr_samples (
    source_id BIGINT,               -- artefact
    locator BIGINT,                 -- record number
    time_ns BIGINT,                 -- sample time
    rank INTEGER,                   -- rank
    queue_pair VARCHAR,             -- queue pair
    posted BIGINT,                  -- work requests posted
    completed BIGINT,               -- work requests completed
    posted_bytes BIGINT,            -- bytes posted
    completed_bytes BIGINT,         -- bytes completed
    in_flight BIGINT,               -- posted and not completed
    oldest_ns BIGINT,               -- age of the oldest signaled work request
    window_rate BIGINT,             -- bytes per second over the sliding window
    busy_ns BIGINT,                 -- time with work in flight
    error_status INTEGER,           -- first completion status that was an error
    vendor_error BIGINT,            -- its vendor code
    error_ns BIGINT,                -- when it was polled
    unacknowledged BIGINT,          -- unsignaled work requests after the last signaled one: unknown, not stuck
    received_bytes BIGINT,          -- bytes of receive completions
    poll_gap_ns BIGINT              -- longest time between two polls since the sample before
);

-- table: One NIC capture.
CREATE TABLE captures (
    source_id BIGINT,               -- artefact
    capture_id BIGINT NOT NULL,     -- number within its artefact: unique with source_id
    host VARCHAR,                   -- host
    nic VARCHAR,                    -- NIC
    epoch_ns BIGINT,                -- epoch length
    unit VARCHAR,                   -- unit of the values
    clock VARCHAR,                  -- clock of the first epoch
    first_epoch BIGINT,             -- first epoch that was captured; null when not stated
    epochs BIGINT,                  -- epochs that were captured: those in no run and not lost had no bytes; null when not stated
    lost VARCHAR,                   -- lost ranges (first epoch, epochs) as JSON
    line_bytes_per_s BIGINT         -- what the line of the NIC can move in bytes per second; null when not stated
);

-- table: Runs of bytes per queue pair; a view unrolls them.
CREATE TABLE nic_epochs (
    source_id BIGINT,               -- artefact
    capture_id BIGINT NOT NULL,     -- capture
    queue_pair VARCHAR,             -- queue pair
    direction VARCHAR,              -- send or recv
    first_epoch BIGINT NOT NULL,    -- index of the first value
    values BIGINT[]                 -- one value an epoch
);

-- table: One training step of one rank.
CREATE TABLE steps (
    source_id BIGINT,               -- artefact
    rank INTEGER,                   -- rank
    step BIGINT,                    -- step
    begin_ns BIGINT,                -- begin
    end_ns BIGINT,                  -- end
    wall_ns BIGINT,                 -- wall time
    batch BIGINT,                   -- batch consumed
    accumulation INTEGER            -- accumulation index
);

-- table: One ordered stage of one rank in one step.
CREATE TABLE stage_spans (
    source_id BIGINT,               -- artefact
    rank INTEGER,                   -- rank
    step BIGINT,                    -- step
    stage VARCHAR,                  -- stage
    substage VARCHAR,               -- name as it was recorded, when it says more than the stage; null for the plain stage
    order_index INTEGER,            -- order of the stage in the step
    schema_hash VARCHAR,            -- ordered-stage schema
    substep INTEGER,                -- substep
    group_role VARCHAR,             -- group or role
    side_channel BOOLEAN,           -- side-channel measurement, never in the prefix
    begin_ns BIGINT,                -- begin
    duration_ns BIGINT,             -- duration
    device_ns BIGINT,               -- device time
    device_ready BOOLEAN            -- device time was ready when read
);

-- table: Anything else with a begin and an end.
CREATE TABLE spans (
    source_id BIGINT,               -- artefact
    locator BIGINT,                 -- event number
    rank INTEGER,                   -- rank
    name VARCHAR,                   -- name
    category VARCHAR,               -- category
    track VARCHAR,                  -- thread or stream
    begin_ns BIGINT,                -- begin
    end_ns BIGINT,                  -- end; null while open
    correlation BIGINT              -- correlation id
);

-- table: One call path element; call paths are shared by operations and stacks.
CREATE TABLE call_paths (
    call_path BIGINT NOT NULL,      -- content hash of the frames, innermost first
    depth INTEGER NOT NULL,         -- 0 is the innermost frame
    frame BIGINT NOT NULL           -- frame
);

-- table: One distinct frame.
CREATE TABLE frames (
    frame BIGINT NOT NULL,          -- content hash of name, file and line
    name VARCHAR NOT NULL,          -- function, as the sampler wrote it
    filename VARCHAR,               -- file, as the sampler wrote it
    line INTEGER                    -- line; null when unknown
);

-- table: One sample of one thread.
CREATE TABLE stacks (
    source_id BIGINT,               -- artefact
    locator VARCHAR,                -- thread=OS thread id
    rank INTEGER,                   -- rank whose process (or child process) it is
    host VARCHAR,                   -- host
    pid BIGINT,                     -- process
    is_child BOOLEAN,               -- a child process of the rank, not the rank itself
    sample INTEGER,                 -- number of the sample, 0 first; one for each moment in moments
    time_ns BIGINT,                 -- realtime clock of the sample; null when unknown
    thread BIGINT,                  -- OS thread id
    thread_name VARCHAR,            -- thread name
    is_main BOOLEAN,                -- main thread of its process
    active BOOLEAN,                 -- on a CPU, as the sampler saw it
    owns_gil BOOLEAN,               -- held the interpreter lock
    call_path BIGINT,               -- call path in call_paths
    clock_s INTEGER,                -- time of day (s) that stands above the dump, or in the name of its file, without a date
    timer_s INTEGER,                -- how long (s) the timer ran that asked for the dump; it begins anew after each dump
    peer INTEGER                    -- global rank that a send or receive on the path is for, where the sampler showed arguments
);

-- table: One kernel that a debugger found on a device.
CREATE TABLE device_kernels (
    source_id BIGINT,               -- artefact
    locator VARCHAR,                -- line=number
    rank INTEGER,                   -- rank whose process launched it
    pid BIGINT,                     -- process
    sample INTEGER,                 -- number of the look, 0 first
    time_ns BIGINT,                 -- realtime clock; null when unknown
    device INTEGER,                 -- device, as the process counts them
    grid BIGINT,                    -- launch: two looks at one grid saw the same one
    kernel VARCHAR NOT NULL,        -- name and arguments as written
    communicates BOOLEAN NOT NULL   -- a kernel of a communication library
);

-- table: One moment of a process that its stacks show, whatever the number of files about it.
CREATE TABLE moments (
    rank INTEGER NOT NULL,          -- rank whose process (or child process) it is
    pid BIGINT,                     -- process; null when no form tells it
    is_child BOOLEAN NOT NULL,      -- a child process of the rank, not the rank itself
    sample INTEGER NOT NULL,        -- its sample in stacks
    time_ns BIGINT,                 -- realtime clock; null when unknown
    captures INTEGER NOT NULL,      -- captures about it: the one in stacks, and those that only repeat it
    proof VARCHAR,                  -- why it is a moment of its own: given (a time or number), names or dates (of files), null for the only one when nothing dates it
    agreed BOOLEAN NOT NULL         -- all of them show the main thread at the same place
);

-- table: One sample of one thread of a process (a process is its main thread).
CREATE TABLE processes (
    source_id BIGINT,               -- artefact
    rank INTEGER,                   -- rank whose process tree it is in
    host VARCHAR,                   -- host
    pid BIGINT,                     -- process
    thread BIGINT,                  -- OS thread id; equal to pid for the main thread
    is_child BOOLEAN,               -- a child process of the rank, not the rank itself
    sample INTEGER,                 -- number of the sample, 0 first
    time_ns BIGINT,                 -- realtime clock of the sample
    name VARCHAR,                   -- comm
    state VARCHAR,                  -- R, S, D, T, t, Z, X
    wchan VARCHAR,                  -- kernel function it sleeps in
    kernel_stack VARCHAR,           -- kernel stack, one frame a line, when readable
    cpu_ticks BIGINT,               -- user and system time in clock ticks
    switches BIGINT,                -- voluntary and involuntary context switches
    tracer BIGINT,                  -- pid of a tracer; 0 for none
    timed BOOLEAN,                  -- whether the process handles a signal that timers send
    deadline BOOLEAN,               -- sleeps on a futex until a date of the wall clock: true; without a limit: false; else null
    waits_on VARCHAR,               -- files that its system call waits on, each `FD -> FILE` on a line of its own; null: not known
    written_bytes BIGINT            -- bytes that calls of the process have written since it began; null: not known
);

-- table: One understood log line.
CREATE TABLE log_events (
    source_id BIGINT,               -- artefact
    locator BIGINT,                 -- line
    time_ns BIGINT,                 -- realtime clock, when the line has a time
    host VARCHAR,                   -- host
    rank INTEGER,                   -- rank
    kind VARCHAR NOT NULL,          -- what it means: exception, peer_closed, watchdog_timeout, oom_kill, xid, hung_task, ...
    subject VARCHAR,                -- what it is about: exception type, pid, device
    text VARCHAR NOT NULL           -- the line, terminal escapes removed
);

-- table: One of the last lines of the log of one rank, as it is.
CREATE TABLE log_tails (
    source_id BIGINT,               -- artefact
    rank INTEGER NOT NULL,          -- rank whose log it is
    place INTEGER NOT NULL,         -- order among the last lines, from 0
    text VARCHAR NOT NULL           -- the line, terminal escapes removed
);

-- table: How far one process got in one communicator, by the newest line of its log that says so.
CREATE TABLE log_positions (
    source_id BIGINT,               -- artefact
    locator BIGINT,                 -- line that says it last
    time_ns BIGINT,                 -- realtime clock of that line, when it has a time with a zone
    host VARCHAR,                   -- host, as the line names it
    pid BIGINT,                     -- process, as the line names it
    rank INTEGER,                   -- global rank; null when the log does not tell
    group_rank INTEGER,             -- rank within the communicator
    size INTEGER,                   -- members of the communicator, when stated
    origin VARCHAR NOT NULL,        -- watchdog (torch), nccl (NCCL INFO lines), or a report of who came: desync, horovod, barrier, analysis, hccl, milestone
    communicator VARCHAR,           -- name of the process group, or commId; equal on all members
    init VARCHAR,                   -- nccl: started, complete, destroyed or aborted; null for the watchdog
    enqueued BIGINT,                -- watchdog: last enqueued work, nccl: highest opCount, report: 1 came, 0 did not; -1 none, null not stated
    started BIGINT,                 -- watchdog: last started work
    completed BIGINT,               -- watchdog: last completed work; null for nccl, whose lines tell the call only
    timed_out BIGINT,               -- watchdog: the work it gave up on
    kind VARCHAR,                   -- the work it gave up on, or the last call of the highest opCount
    count BIGINT,                   -- elements of that call
    dtype VARCHAR,                  -- element type of that call
    gpu VARCHAR,                    -- its GPU: address on PCI as NCCL writes it, hexadecimal without colons
    is_p2p BOOLEAN                  -- point-to-point work was seen here: its numbers differ between members
);

-- table: One call that a log speaks of: the newest of each process in each communicator by NCCL's COLL lines, or one that torch compared with others.
CREATE TABLE log_calls (
    source_id BIGINT,               -- artefact
    locator BIGINT,                 -- line
    origin VARCHAR NOT NULL,        -- nccl, fingerprint (TORCH_DISTRIBUTED_DEBUG=DETAIL), or analysis (torchfrtrace)
    host VARCHAR,                   -- host, as the line names it
    pid BIGINT,                     -- process, as the line names it
    rank INTEGER,                   -- global rank; null when the log does not tell
    communicator VARCHAR,           -- as in log_positions
    number BIGINT,                  -- nccl: opCount; fingerprint: sequence number
    kind VARCHAR NOT NULL,          -- operation
    sizes VARCHAR,                  -- elements, or the shape
    dtype VARCHAR,                  -- element type
    root INTEGER,                   -- root, as the caller gave it; nccl only
    operation INTEGER               -- reduction, by NCCL's number
);

-- table: One rank in a report of a detector of stragglers, as a log prints it.
CREATE TABLE straggler_reports (
    source_id BIGINT,               -- artefact
    locator BIGINT,                 -- line
    report INTEGER NOT NULL,        -- number of the report in its file, among those of one measure
    measure VARCHAR NOT NULL,       -- score, section NAME, round trip, throughput, test NAME or clock
    rank INTEGER NOT NULL,          -- global rank
    factor DOUBLE NOT NULL,         -- times as long as the fastest rank of the report; clock: times as low as the highest
    is_listed BOOLEAN NOT NULL      -- other ranks stand in it too; false where only the slowest is named
);

-- table: How long one rank took for one part of one step, as a line or a table of its log says.
CREATE TABLE log_stage_times (
    source_id BIGINT,               -- artefact
    locator BIGINT,                 -- line
    rank INTEGER,                   -- global rank, null where the line tells none
    step BIGINT NOT NULL,           -- number of the step in the line; where none stands, that of the line among those of its rank
    kind VARCHAR NOT NULL,          -- data, forward, backward, optimizer, ..., wait (for peers), message (of a pipeline) or whole (the step)
    ms DOUBLE NOT NULL              -- time; those of one kind are added up
);

-- table: One line of a log that counts something up: a step, an item of a total, a bar.
CREATE TABLE log_progress (
    source_id BIGINT,               -- artefact
    locator BIGINT,                 -- line
    rank INTEGER,                   -- global rank, null where the line tells none
    series VARCHAR NOT NULL,        -- what is counted, by the words around the number: one name for each series of a file
    part INTEGER NOT NULL,          -- grows where the number falls
    step BIGINT NOT NULL,           -- the number
    total BIGINT,                   -- what it counts up to, where it stands there
    clock VARCHAR,                  -- line: time in front of the line; bar: what a bar says has elapsed
    at_s DOUBLE,                    -- by that clock: from 1970 as if the time were UTC, or from the begin of the bar
    stated_s DOUBLE,                -- how long a step took, as the line states it
    load VARCHAR,                   -- sizes of batch and sequence that the line states
    text VARCHAR NOT NULL           -- the line, 160 characters of it
);

-- table: Hardware events.
CREATE TABLE device_events (
    source_id BIGINT,               -- artefact
    locator BIGINT,                 -- line
    time_ns BIGINT,                 -- realtime clock
    host VARCHAR,                   -- host
    device VARCHAR,                 -- device
    kind VARCHAR NOT NULL,          -- xid, ecc, link_down, throttle, ...
    code INTEGER,                   -- code, for example the Xid number
    text VARCHAR                    -- as reported
);

-- table: One counter at one time; two reads make a delta.
CREATE TABLE counters (
    source_id BIGINT,               -- artefact
    host VARCHAR,                   -- host
    device VARCHAR,                 -- device and port
    counter VARCHAR NOT NULL,       -- name
    sample INTEGER,                 -- number of the read, 0 first
    time_ns BIGINT,                 -- realtime clock
    value BIGINT                    -- value
);

-- table: One NCCL RAS report: what the service of one process said of the whole job.
CREATE TABLE ras_reports (
    source_id BIGINT,               -- artefact
    host VARCHAR,                   -- host whose service was asked
    snapshot INTEGER,               -- 0 for the first query on a host, 1 for a later one, ...
    form VARCHAR NOT NULL,          -- json or text
    taken VARCHAR,                  -- wall clock of the service as written, to the second and without a zone; JSON only
    nccl_version VARCHAR,           -- version of NCCL
    communicators INTEGER,          -- communicators that the report counts; the text form names only those with a finding
    gpus INTEGER,                   -- GPUs of the job as the report counts them; text only
    timeouts INTEGER                -- communication timeouts while the answer was gathered; null when not stated
);

-- table: What NCCL RAS says of one rank of one communicator, by kind of collective; point-to-point calls and replays of a captured graph are not counted.
CREATE TABLE ras_ranks (
    source_id BIGINT,               -- artefact
    locator VARCHAR,                -- place in it: communicator and rank (JSON), line (text)
    host VARCHAR,                   -- host whose service was asked
    snapshot INTEGER,               -- 0 for the first query on a host, 1 for a later one, ...
    communicator VARCHAR,           -- hash of the communicator, 16 hexadecimal digits; null for a process as a whole
    secondary VARCHAR,              -- second hash, which makes it unique; JSON only
    size INTEGER,                   -- number of ranks of the communicator
    comm_rank INTEGER,              -- rank within the communicator; null for a set of ranks that is not named
    ranks INTEGER,                  -- ranks the row stands for: 1, or the size of such a set
    address VARCHAR,                -- IP address of the rank's process
    pid BIGINT,                     -- process, as it numbers itself
    device INTEGER,                 -- NVML index of its GPU
    kind VARCHAR,                   -- all_reduce, ...; collective for the sum of all kinds (NCCL 2.24 and 2.25); null for none
    launched BIGINT,                -- collectives of this kind launched so far; null when not stated
    status VARCHAR,                 -- running, init, init_failed, finalize, abort, nocomm, unresponsive or dead; null when not stated
    init_state INTEGER,             -- result code of the initialisation (0 done, 7 in progress)
    async_error INTEGER             -- asynchronous result code (0 none)
);

-- table: Clocks of a host, and offsets between hosts.
CREATE TABLE clocks (
    source_id BIGINT,               -- artefact
    host VARCHAR NOT NULL,          -- host
    reference VARCHAR,              -- host it is compared with; null for a reading of its own
    offset_ns BIGINT,               -- host minus reference
    bound_ns BIGINT,                -- error bound
    method VARCHAR,                 -- from what
    realtime_ns BIGINT,             -- CLOCK_REALTIME
    monotonic_ns BIGINT,            -- CLOCK_MONOTONIC read together with it
    boottime_ns BIGINT              -- CLOCK_BOOTTIME read together with it
);

-- table: Derived: the shim log that speaks for a rank, its newest; none at all where two processes were one rank at a time.
CREATE TABLE rank_logs (
    source_id BIGINT NOT NULL,      -- log
    rank INTEGER NOT NULL           -- rank it speaks for
);

-- table: Derived: what all shim logs together say of a call in one of them, where some rank with a log has no dump.
CREATE TABLE logged_calls (
    source_id BIGINT NOT NULL,      -- log
    locator BIGINT NOT NULL,        -- record number of the call
    sequence BIGINT,                -- number among the collectives of its communicator, or among the calls of its pair
    record_id BIGINT,               -- number among all calls of the process, from 0 where the log holds its first
    state VARCHAR NOT NULL          -- pending, started or done
);

-- table: Derived: what an operation was for.
CREATE TABLE operation_roles (
    source_id BIGINT,               -- artefact of the operation
    locator BIGINT,                 -- entry of the operation
    direction VARCHAR,              -- forward or backward
    microbatch INTEGER,             -- microbatch
    model_chunk INTEGER,            -- model chunk
    pipeline_stage INTEGER,         -- pipeline stage
    method VARCHAR NOT NULL,        -- how it was inferred
    confidence VARCHAR NOT NULL     -- read, inferred or assumed
);

-- table: Derived: what a communicator is for, as the diagnosis found it (docs/layout.md); empty in a case that was not diagnosed.
CREATE TABLE communicator_roles (
    communicator VARCHAR NOT NULL,  -- communicator
    role VARCHAR NOT NULL,          -- tp, pp, dp, cp, ep, world, embedding, none (small calls only) or unknown
    method VARCHAR NOT NULL,        -- calls, reported (its name), configured or nothing
    confidence VARCHAR NOT NULL     -- read, inferred, assumed or unknown
);

-- table: Every hypothesis, also those that accuse nobody.
CREATE TABLE findings (
    finding_id INTEGER PRIMARY KEY, -- number
    rule VARCHAR NOT NULL,          -- rule code
    role VARCHAR NOT NULL,          -- root, victim or confirmation
    ranks INTEGER[],                -- subject
    stage VARCHAR,                  -- stage
    cause VARCHAR,                  -- cause
    confidence VARCHAR,             -- confirmed, likely or suspect
    strength DOUBLE,                -- share of the observations that it explains
    explains INTEGER,               -- observations that it explains, one for each rank
    leaves INTEGER,                 -- observations that it leaves over
    fault INTEGER,                  -- number of its fault in the verdict; null when it was withheld
    withheld VARCHAR                -- why it accuses nobody; null when it does
);

-- table: Evidence of the findings.
CREATE TABLE evidence (
    finding_id INTEGER NOT NULL,    -- finding
    position INTEGER NOT NULL,      -- order
    supports BOOLEAN NOT NULL,      -- for or against
    statement VARCHAR NOT NULL,     -- statement
    source VARCHAR                  -- path#locator
);

-- table: The verdict, as its JSON document.
CREATE TABLE verdict (
    outcome VARCHAR NOT NULL,       -- outcome
    document VARCHAR NOT NULL       -- forensics.verdict/1 as JSON
);
