package metrics

import "slices"

// Buckets of histograms of time, in seconds.
var (
	rpcBuckets   = []float64{.001, .005, .025, .1, .5, 2.5, 10, 60}
	startBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .5, 2.5}
)

// Groups of metrics, in the order of documents and dashboards.
const (
	groupCalls     = "Calls"
	groupProcesses = "Processes"
	groupBytes     = "Output, input and files"
	groupSessions  = "Sessions and connections"
	groupLimits    = "Limits and refusals"
	groupRelay     = "Relay"
	groupPreviews  = "Previews"
	groupProgram   = "Program"
)

// Server are the metrics of a server.
var Server = []Metric{
	{Name: "execwire_rpcs_total", Title: "Calls by method and code", Type: Counter, Labels: []string{"api", "method", "code"}, Group: groupCalls,
		Help: "Calls that have ended, by API, method and code of gRPC; those that the server makes for clients of its other APIs, too."},
	{Name: "execwire_rpcs_in_flight", Title: "Calls in progress", Type: Gauge, Labels: []string{"api"}, Group: groupCalls,
		Help: "Calls in progress, streams included."},
	{Name: "execwire_rpc_duration_seconds", Title: "Time of calls", Type: Histogram, Labels: []string{"api", "method"}, Buckets: rpcBuckets, Group: groupCalls,
		Help: "Time of calls that are no streams, with the time that they wait for output, exits or ports."},

	{Name: "execwire_processes", Title: "Processes", Type: Gauge, Labels: []string{"state"}, Group: groupProcesses,
		Help: "Processes by state: starting, running, exited (open streams or descendants are left) or closed (kept to be read)."},
	{Name: "execwire_process_starts_total", Title: "Starts", Type: Counter, Labels: []string{"sandbox"}, Group: groupProcesses,
		Help: "Processes that were started, by the backend of their sandbox."},
	{Name: "execwire_process_start_failures_total", Title: "Failed starts", Type: Counter, Labels: []string{"reason"}, Group: groupProcesses,
		Help: "Processes that could not be started, by the reason."},
	{Name: "execwire_process_start_duration_seconds", Title: "Time of starts", Type: Histogram, Labels: []string{"sandbox"}, Buckets: startBuckets, Group: groupProcesses,
		Help: "Time from the start of a process to the execution of its program."},
	{Name: "execwire_process_exits_total", Title: "Exits", Type: Counter, Labels: []string{"cause"}, Group: groupProcesses,
		Help: "Processes that have exited, by the cause."},
	{Name: "execwire_process_kills_total", Title: "Kills", Type: Counter, Labels: []string{"method", "verified"}, Group: groupProcesses,
		Help: "Kills of process trees, by the strongest method that was needed, and by whether it was verified that no descendant is left."},
	{Name: "execwire_processes_blocked", Title: "Blocked processes", Type: Gauge, Group: groupProcesses,
		Help: "Processes whose output is not read, because their owner has a full window of it to acknowledge."},
	{Name: "execwire_unacknowledged_bytes", Title: "Unacknowledged output", Type: Gauge, Group: groupProcesses,
		Help: "Output that was read from processes and that their owners have not acknowledged."},
	{Name: "execwire_retained_bytes", Title: "Retained output", Type: Gauge, Group: groupProcesses,
		Help: "Memory that counts for retained_output_bytes_total."},
	{Name: "execwire_output_file_bytes", Title: "Output in files", Type: Gauge, Group: groupProcesses,
		Help: "Output of processes in files, which counts for output_file_bytes_total."},
	{Name: "execwire_output_file_failures_total", Title: "Output not written", Type: Counter, Group: groupProcesses,
		Help: "Blocks of output, of at most 64 KiB, that could not be written to a file: readers get a gap."},

	{Name: "execwire_output_bytes_total", Title: "Output", Type: Counter, Labels: []string{"api", "stream"}, Group: groupBytes,
		Help: "Output of processes that was sent to clients, once for each client."},
	{Name: "execwire_input_bytes_total", Title: "Input", Type: Counter, Labels: []string{"api"}, Group: groupBytes,
		Help: "Input for processes that was received from clients, repetitions included."},
	{Name: "execwire_file_transfers_total", Title: "Transfers of files", Type: Counter, Labels: []string{"api", "direction", "result"}, Group: groupBytes,
		Help: "Uploads and downloads of files that have ended."},
	{Name: "execwire_file_bytes_total", Title: "Content of files", Type: Counter, Labels: []string{"api", "direction"}, Group: groupBytes,
		Help: "Content of files in uploads and downloads, and in reads and writes of whole files."},

	{Name: "execwire_sessions", Title: "Sessions", Type: Gauge, Labels: []string{"state"}, Group: groupSessions,
		Help: "Sessions: attached, grace (a client may resume them) or default (of a principal, without a lease)."},
	{Name: "execwire_http_clients", Title: "JSON-RPC and HTTP", Type: Gauge, Group: groupSessions,
		Help: "JSON-RPC connections, and HTTP requests in progress."},
	{Name: "execwire_relay_connected", Title: "Connected to the hub", Type: Gauge, Group: groupSessions,
		Help: "1 while an executor is connected to its hub, 0 while it is not."},
	{Name: "execwire_relay_streams", Title: "Streams through the hub", Type: Gauge, Group: groupSessions,
		Help: "Streams of clients that come to an executor through its hub."},

	{Name: "execwire_limits_hit_total", Title: "Limits hit", Type: Counter, Labels: []string{"limit"}, Group: groupLimits,
		Help: "Requests that were refused because of a limit, by the setting, or the limit of the system."},
	{Name: "execwire_auth_failures_total", Title: "Failed authentication", Type: Counter, Labels: []string{"reason"}, Group: groupLimits,
		Help: "Clients that were not authenticated, by the reason."},
	{Name: "execwire_audit_records_total", Title: "Audit log", Type: Counter, Labels: []string{"result"}, Group: groupLimits,
		Help: "Records of the audit log: written, dropped (they could not be written) or suppressed (denials beyond the bounds per second)."},
	{Name: "execwire_recordings_total", Title: "Recordings", Type: Counter, Labels: []string{"result"}, Group: groupLimits,
		Help: "Recordings of terminals: begun, or failed (they could not be written: recording_failure says what happens)."},
	{Name: "execwire_recorded_bytes_total", Title: "Recorded", Type: Counter, Group: groupBytes,
		Help: "Bytes of recordings of terminals."},
	{Name: "execwire_sandbox_refusals_total", Title: "Refused sandboxes", Type: Counter, Labels: []string{"reason"}, Group: groupLimits,
		Help: "Calls that were refused because their sandbox could not be enforced or started."},

	{Name: "execwire_trace_spans_total", Title: "Traces", Type: Counter, Labels: []string{"result"}, Group: groupProgram,
		Help: "Spans of traces that a collector has taken (exported), and that were lost (dropped)."},
	{Name: "execwire_build_info", Title: "Servers by version", Type: Gauge, Labels: []string{"version"}, Group: groupProgram, Help: "1, with the version."},
}

// Hub are the metrics of a hub.
var Hub = []Metric{
	{Name: "execwire_hub_executors", Title: "Executors", Type: Gauge, Labels: []string{"state"}, Group: groupRelay,
		Help: "Registered executors, online or offline, at all nodes."},
	{Name: "execwire_hub_presence_ready", Title: "Presence can be stored", Type: Gauge, Group: groupRelay,
		Help: "1 while the hub can store the presence of executors."},
	{Name: "execwire_hub_connections", Title: "Websockets", Type: Gauge, Group: groupRelay,
		Help: "Websockets of executors and harnesses."},
	{Name: "execwire_hub_streams", Title: "Streams", Type: Gauge, Group: groupRelay,
		Help: "Streams that the hub routes."},
	{Name: "execwire_hub_queued_bytes", Title: "Queued", Type: Gauge, Group: groupRelay,
		Help: "Bytes that wait to be sent."},
	{Name: "execwire_hub_frames_total", Title: "Frames", Type: Counter, Group: groupRelay,
		Help: "Frames that were routed."},
	{Name: "execwire_hub_frame_bytes_total", Title: "Bytes of frames", Type: Counter, Group: groupRelay,
		Help: "Bytes of frames that were routed."},
	{Name: "execwire_hub_dropped_frames_total", Title: "Dropped frames", Type: Counter, Labels: []string{"reason"}, Group: groupRelay,
		Help: "Frames that were not routed, by the reason."},
	{Name: "execwire_hub_resets_total", Title: "Ended streams", Type: Counter, Group: groupRelay,
		Help: "Streams that the hub ended."},

	{Name: "execwire_hub_preview_links", Title: "Links", Type: Gauge, Group: groupPreviews,
		Help: "Links to previews that are valid."},
	{Name: "execwire_hub_preview_connections", Title: "Requests in progress", Type: Gauge, Group: groupPreviews,
		Help: "Requests and websockets of previews in progress."},
	{Name: "execwire_hub_preview_requests_total", Title: "Requests", Type: Counter, Group: groupPreviews,
		Help: "Requests that were passed to ports."},

	{Name: "execwire_hub_refusals_total", Title: "Refusals", Type: Counter, Labels: []string{"code"}, Group: groupLimits,
		Help: "Requests and websockets that were refused, by the code that the client received."},
	{Name: "execwire_hub_limits_hit_total", Title: "Limits hit", Type: Counter, Labels: []string{"limit"}, Group: groupLimits,
		Help: "Requests and websockets that were refused because of a limit, by the setting."},
	{Name: "execwire_hub_auth_failures_total", Title: "Failed authentication", Type: Counter, Labels: []string{"reason"}, Group: groupLimits,
		Help: "Clients that were not authenticated, by the reason."},

	{Name: "execwire_hub_audit_records_total", Title: "Audit log", Type: Counter, Labels: []string{"result"}, Group: groupLimits,
		Help: "Records of the audit log of the hub: written, dropped (they could not be written) or suppressed (denials beyond the bounds per second)."},

	{Name: "execwire_hub_build_info", Title: "Hubs by version", Type: Gauge, Labels: []string{"version"}, Group: groupProgram, Help: "1, with the version."},
}

// Collected are metrics of the libraries for the process and for Go that dashboards and
// alerts use; a scrape has more of them.
var Collected = []Metric{
	{Name: "process_open_fds", Title: "Open descriptors", Type: Gauge, Group: groupProgram, Help: "Open descriptors."},
	{Name: "process_max_fds", Title: "Limit of descriptors", Type: Gauge, Group: groupProgram, Help: "The limit of open descriptors."},
	{Name: "process_resident_memory_bytes", Title: "Resident memory", Type: Gauge, Group: groupProgram, Help: "Resident memory."},
	{Name: "process_cpu_seconds_total", Title: "Processors", Type: Counter, Group: groupProgram, Help: "Time of the processors, of the program and not of its processes."},
	{Name: "go_goroutines", Title: "Goroutines", Type: Gauge, Group: groupProgram, Help: "Goroutines."},
	{Name: "go_memstats_heap_alloc_bytes", Title: "Heap", Type: Gauge, Group: groupProgram, Help: "Memory of the heap that is in use."},
}

// All returns the metrics of server and hub, and Collected.
func All() []Metric { return slices.Concat(Server, Hub, Collected) }
