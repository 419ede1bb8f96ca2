package metrics

// alert is a rule of deploy/monitoring/alerts.yaml.
type alert struct {
	name, expr, lasts, severity string
	summary                     string // what is wrong, with the labels
	fix                         string // what to do
}

// newCount is an expression for a counter that has increased within ten minutes, or that
// did not exist before: a counter whose labels are not known in advance begins with 1,
// which is no increase to Prometheus.
func newCount(counter string) string {
	return "increase(" + counter + "[10m]) > 0 or (" + counter + " > 0 unless " + counter + " offset 10m)"
}

// waits are the calls that last as long as the client wants, or as the process does.
const waits = `.*/(ReadOutput|WaitProcess|TerminateProcess|CloseSession|WriteStdin|CopyPath|RemovePath)`

// alerts are the rules. Their expressions may name only what is in the lists.
var alerts = []struct {
	group string
	rules []alert
}{
	{"execwire", []alert{
		{"ExecwireLimitHit", newCount("execwire_limits_hit_total"), "0m", "warning",
			"{{ $labels.instance }} refuses requests because of the limit {{ $labels.limit }}",
			"Raise the setting, or find the client that needs so much: the log has the principal of each refused call."},
		{"ExecwireKillNotVerified", newCount(`execwire_process_kills_total{verified="false"}`), "0m", "critical",
			"{{ $labels.instance }} could not verify that a kill left no process alive",
			"Give the server a control group of its own (Delegate=yes), and look for processes that are left on the machine."},
		{"ExecwireProcessesBlocked", "execwire_processes_blocked > 0", "15m", "warning",
			"Processes of {{ $labels.instance }} have been blocked for 15 minutes",
			"Their clients do not acknowledge output. List the processes with execwire ps, and look whether their clients still read."},
		{"ExecwireDescriptorsNearLimit",
			"process_open_fds / process_max_fds > 0.8 and on (job, instance) (execwire_build_info or execwire_hub_build_info)", "5m", "warning",
			"{{ $labels.instance }} has {{ $value | humanizePercentage }} of its descriptors open",
			"Raise LimitNOFILE, or lower the limits of processes, connections and file handles."},
		{"ExecwireAuthenticationFails", "sum by (job, instance) (rate(execwire_auth_failures_total[5m])) > 0.2", "5m", "warning",
			"{{ $labels.instance }} refuses {{ $value | humanize }} clients a second that do not authenticate",
			"The log has their addresses. Find the client with the old token, or who is guessing."},
		{"ExecwireCallsSlow",
			`histogram_quantile(0.99, sum by (job, instance, le) (rate(execwire_rpc_duration_seconds_bucket{method!~"` + waits + `"}[5m]))) > 1`, "10m", "warning",
			"One call in a hundred to {{ $labels.instance }} takes {{ $value | humanizeDuration }}",
			"The dashboard has the time by method. Look at the processors, the disk and the file systems of the machine."},
		{"ExecwireStartsSlow",
			"histogram_quantile(0.99, sum by (job, instance, le) (rate(execwire_process_start_duration_seconds_bucket[5m]))) > 0.5", "10m", "warning",
			"One start in a hundred on {{ $labels.instance }} takes {{ $value | humanizeDuration }}",
			"Look at the processors of the machine, and at the file systems of working directories and programs."},
		{"ExecwireInternalErrors", newCount(`execwire_rpcs_total{code=~"Internal|Unknown|DataLoss"}`), "0m", "critical",
			"{{ $labels.method }} has failed on {{ $labels.instance }} because of a fault of the server",
			"The log has the error at level ERROR; report it."},
		{"ExecwireSandboxRefused", newCount("execwire_sandbox_refusals_total"), "0m", "warning",
			"{{ $labels.instance }} refuses calls because their sandbox fails: {{ $labels.reason }}",
			"Run execwire doctor on the machine."},
		{"ExecwireAuditRecordsDropped", `increase(execwire_audit_records_total{result="dropped"}[10m]) > 0`, "0m", "critical",
			"{{ $labels.instance }} cannot write its audit log",
			"Its log says why. Look whether the disk is full; audit_failure says what happens to the calls."},
		{"ExecwireRelayDisconnected", "execwire_relay_connected == 0", "5m", "critical",
			"The executor {{ $labels.instance }} has not been connected to its hub for 5 minutes",
			"Its log says why. Check the hub, the token and the network."},
	}},
	{"execwire-hub", []alert{
		{"ExecwireHubWithoutExecutors", `execwire_hub_executors{state="online"} == 0`, "10m", "critical",
			"No executor is connected to the hub {{ $labels.instance }}",
			"Look at the log of an executor: it says why it cannot connect."},
		{"ExecwireHubPresenceUnavailable", "execwire_hub_presence_ready == 0", "2m", "critical",
			"The hub {{ $labels.instance }} cannot store the presence of executors",
			"Its log says why. In a cluster check that the other nodes are reachable, and that most of them run."},
		{"ExecwireHubLimitHit", newCount("execwire_hub_limits_hit_total"), "0m", "warning",
			"The hub {{ $labels.instance }} refuses requests or streams because of the limit {{ $labels.limit }}",
			"Raise the setting, or find the principal that needs so much in the log."},
		{"ExecwireHubAuthenticationFails", "sum by (job, instance) (rate(execwire_hub_auth_failures_total[5m])) > 0.2", "5m", "warning",
			"The hub {{ $labels.instance }} refuses {{ $value | humanize }} clients a second that do not authenticate",
			"The log has their addresses. Find the client with the old token, or who is guessing."},
		{"ExecwireHubAuditRecordsDropped", `increase(execwire_hub_audit_records_total{result="dropped"}[10m]) > 0`, "0m", "critical",
			"The audit log of the hub {{ $labels.instance }} cannot be written",
			"Free space on its disk. With audit_failure = refuse the hub refuses to act until then, with drop it acts without records."},
		{"ExecwireHubFramesDropped", `rate(execwire_hub_dropped_frames_total{reason="full"}[5m]) > 10`, "10m", "warning",
			"The hub {{ $labels.instance }} drops {{ $value | humanize }} frames a second, because their receivers are too slow",
			"Streams through the hub are slow, and lose nothing. Look at the network of executors and clients, or raise queue_bytes_total."},
	}},
}
