package daemon

import (
	"errors"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/execwire/execwire/gateway/wsserver"
	"github.com/execwire/execwire/internal/audit"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/metrics"
	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/sandbox"
	"github.com/execwire/execwire/internal/session"
	"github.com/execwire/execwire/relay"
	"github.com/execwire/execwire/server/admin"
	"github.com/execwire/execwire/server/traffic"
)

const metricsPath = "/metrics"

// serveMetrics serves the metrics to every authenticated caller.
func (c *clients) serveMetrics() http.Handler {
	served := c.metrics.set.Handler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != metricsPath {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		call, err := c.beginHTTP(r, c.authenticator.admitHTTP)
		if err != nil {
			wsserver.RefusalOf(err, false).Answer(w)
			return
		}
		defer call.end()
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET,HEAD")
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		served.ServeHTTP(w, r)
	})
}

// serverMetrics are the metrics of a server. All methods may be called concurrently.
type serverMetrics struct {
	set            *metrics.Set
	authFailures   *prometheus.CounterVec
	limits         *prometheus.CounterVec
	refusedSandbox *prometheus.CounterVec

	calls        *prometheus.CounterVec
	callDuration *prometheus.HistogramVec
	transfers    *prometheus.CounterVec

	starts        *prometheus.CounterVec
	startFailures *prometheus.CounterVec
	startDuration *prometheus.HistogramVec
	exits, kills  *prometheus.CounterVec

	apis  map[api]*apiCounts             // not changed
	relay atomic.Pointer[relay.Endpoint] // nil: the server is no executor
	live  atomic.Int64                   // clients of HTTP and JSON-RPC
}

// apiCounts are the counts of one API.
type apiCounts struct {
	inFlight atomic.Int64
	bytes    traffic.Bytes
	methods  sync.Map // of *methodCounts, of those that were called, by their full names
}

// newServerMetrics returns metrics of which those of processes and sessions, if there are
// any, are served from begin on.
func newServerMetrics(version string) *serverMetrics {
	set := metrics.New(metrics.Server, version)
	m := &serverMetrics{
		set:            set,
		authFailures:   set.Counter("execwire_auth_failures_total"),
		limits:         set.Counter("execwire_limits_hit_total"),
		refusedSandbox: set.Counter("execwire_sandbox_refusals_total"),
		calls:          set.Counter("execwire_rpcs_total"),
		callDuration:   set.Histogram("execwire_rpc_duration_seconds"),
		transfers:      set.Counter("execwire_file_transfers_total"),
		starts:         set.Counter("execwire_process_starts_total"),
		startFailures:  set.Counter("execwire_process_start_failures_total"),
		startDuration:  set.Histogram("execwire_process_start_duration_seconds"),
		exits:          set.Counter("execwire_process_exits_total"),
		kills:          set.Counter("execwire_process_kills_total"),
		apis:           make(map[api]*apiCounts),
	}
	for _, name := range apis {
		m.apis[name] = new(apiCounts)
	}
	set.OnScrape(func(emit metrics.Emit) { emit("execwire_http_clients", float64(m.live.Load())) })
	return m
}

// begin serves the metrics of a daemon's sessions, audit log and traces, too. Counters whose
// labels are known begin at 0: otherwise their first increase is no change to Prometheus.
func (m *serverMetrics) begin(d *Daemon) {
	for _, label := range sandboxLabels {
		m.starts.WithLabelValues(label)
	}
	for _, label := range causeLabels[1:] {
		m.exits.WithLabelValues(label)
	}
	for _, label := range killLabels {
		m.kills.WithLabelValues(label, "true")
		m.kills.WithLabelValues(label, "false")
	}
	m.set.OnScrape(func(emit metrics.Emit) {
		m.emit(emit, d.sessions, d.AuditStats())
		recordings := d.recordings.Stats()
		emit.EmitAll("execwire_recordings_total", map[string]float64{"begun": float64(recordings.Begun), "failed": float64(recordings.Failed)})
		emit("execwire_recorded_bytes_total", float64(recordings.Bytes))
		files := d.files.Stats()
		emit("execwire_output_file_bytes", float64(files.Bytes))
		emit("execwire_output_file_failures_total", float64(files.Failures))
		emit("execwire_trace_spans_total", float64(d.tracer.Exported()), "exported")
		emit("execwire_trace_spans_total", float64(d.tracer.Dropped()), "dropped")
	})
}

// emit reports what is only known when it is asked for.
func (m *serverMetrics) emit(emit metrics.Emit, sessions *session.Registry, audited audit.Stats) {
	now := sessions.Census()
	emit.EmitAll("execwire_processes", map[string]float64{"starting": float64(now.Starting), "running": float64(now.Running),
		"exited": float64(now.Exited), "closed": float64(now.Closed)})
	emit("execwire_processes_blocked", float64(now.Blocked))
	emit("execwire_unacknowledged_bytes", float64(now.UnacknowledgedBytes))
	emit("execwire_retained_bytes", float64(sessions.Totals().RetainedBytes))
	emit.EmitAll("execwire_sessions", map[string]float64{"default": float64(now.Default), "attached": float64(now.Attached), "grace": float64(now.Detached)})
	emit("execwire_http_clients", float64(m.live.Load()))
	if endpoint := m.relay.Load(); endpoint != nil {
		streams, connected := endpoint.Status()
		emit("execwire_relay_streams", float64(streams))
		emit("execwire_relay_connected", map[bool]float64{true: 1}[connected])
	}
	emit.EmitAll("execwire_audit_records_total", audited.ByResult())
	for _, name := range apis {
		counts, label := m.apis[name], string(name)
		emit("execwire_rpcs_in_flight", float64(counts.inFlight.Load()), label)
		for stream, count := range map[string]*atomic.Int64{"stdout": &counts.bytes.Stdout, "stderr": &counts.bytes.Stderr, "terminal": &counts.bytes.Terminal} {
			emit("execwire_output_bytes_total", float64(count.Load()), label, stream)
		}
		emit("execwire_input_bytes_total", float64(counts.bytes.Stdin.Load()), label)
		emit("execwire_file_bytes_total", float64(counts.bytes.Uploaded.Load()), label, "upload")
		emit("execwire_file_bytes_total", float64(counts.bytes.Downloaded.Load()), label, "download")
	}
}

// limitHit counts a request that was refused because of a limit.
func (m *serverMetrics) limitHit(setting string) { m.limits.WithLabelValues(setting).Inc() }

// notAuthenticated counts a client that was not authenticated, unless err is nil.
func (m *serverMetrics) notAuthenticated(err error) {
	if refused, ok := errors.AsType[*auth.Error](err); ok {
		m.authFailures.WithLabelValues(strings.ReplaceAll(refused.Kind.String(), " ", "_")).Inc()
	}
}

// sentFile counts content of a file that was sent over HTTP.
func (m *serverMetrics) sentFile(bytes int64, err error) {
	m.apis[apiHTTP].bytes.Downloaded.Add(bytes)
	m.transferred(apiHTTP, "download", err)
}

// Labels of the values of package process.
var (
	sandboxLabels = []string{"none", "bubblewrap", "landlock"}
	causeLabels   = [...]string{process.CauseExited: "exited", process.CauseTerminated: "terminated", process.CauseTimeout: "timeout",
		process.CauseNoOutput: "no_output", process.CauseLimit: "limit", process.CauseServerShutdown: "server_shutdown", process.CauseLost: "lost"}
	killLabels = [...]string{process.MethodNone: "none", process.MethodProcessGroup: "process_group",
		process.MethodDescendants: "descendants", process.MethodCgroup: "cgroup"}
	startFailureLabels = map[process.Kind]string{
		0: "caller_gone", process.Internal: "internal", process.InvalidArgument: "invalid_argument", process.ProgramNotFound: "program_not_found",
		process.NotExecutable: "not_executable", process.BadWorkingDirectory: "bad_working_directory", process.PermissionDenied: "permission_denied",
		process.ArgumentListTooLong: "argument_list_too_long", process.ResourceLimit: "resource_limit", process.SandboxNotStarted: "sandbox_not_started",
		process.ShuttingDown: "shutting_down",
	}
)

// sandboxLabel returns the label of a backend; 0 is none.
func sandboxLabel(backend sandbox.Backend) string {
	if backend == 0 {
		return sandboxLabels[0]
	}
	return backend.String()
}

// Started implements process.Observer.
func (m *serverMetrics) Started(backend sandbox.Backend, took time.Duration) {
	label := sandboxLabel(backend)
	m.starts.WithLabelValues(label).Inc()
	m.startDuration.WithLabelValues(label).Observe(took.Seconds())
}

// NotStarted implements process.Observer.
func (m *serverMetrics) NotStarted(kind process.Kind) {
	label, ok := startFailureLabels[kind]
	if !ok {
		label = startFailureLabels[process.Internal]
	}
	m.startFailures.WithLabelValues(label).Inc()
}

// Exited implements process.Observer.
func (m *serverMetrics) Exited(cause process.Cause) {
	m.exits.WithLabelValues(causeLabels[cause]).Inc()
}

// Killed implements process.Observer.
func (m *serverMetrics) Killed(method process.Method, verified bool) {
	m.kills.WithLabelValues(killLabels[method], strconv.FormatBool(verified)).Inc()
}

// waitingCalls are the calls whose times say nothing about the server: they last as long as
// the client wants, or as the process does. The alert rules leave out the same.
var waitingCalls = []string{"ReadOutput", "WaitProcess", "TerminateProcess", "CloseSession", "WriteStdin", "CopyPath", "RemovePath"}

// counts returns what the console shows of the metrics.
func (m *serverMetrics) counts() admin.Counts {
	c := admin.Counts{Started: metrics.Total(m.starts), FailedStarts: metrics.Total(m.startFailures)}
	c.StartTimes.Bounds, c.StartTimes.Counts = metrics.Distribution(m.startDuration, func(map[string]string) bool { return true })
	c.CallTimes.Bounds, c.CallTimes.Counts = metrics.Distribution(m.callDuration, func(labels map[string]string) bool {
		return !slices.Contains(waitingCalls, path.Base(labels["method"]))
	})
	return c
}

// adminConfig returns what AdminService operates.
func adminConfig(d *Daemon) admin.Config {
	c := admin.Config{Operations: d, Sessions: d.sessions, Counts: d.metrics.counts}
	if d.audit != nil {
		c.Audit = d.audit.Log
	}
	return c
}
