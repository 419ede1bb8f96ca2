// Package config holds every setting of the daemon: its name, default, unit,
// range and meaning, in one place. Settings come, later ones winning, from
// their defaults, a TOML file and the environment (EXECWIRE_ and the name in
// upper case), and the command line.
package config

import (
	"slices"
	"strings"
	"time"
)

// Config is a complete configuration. The zero value is not usable: begin with
// [Default]. A field's tags are its documentation; docs/configuration.md is
// made from them. The struct is plain data and safe to copy.
type Config struct {
	// Listen is where the daemon accepts clients.
	Listen []string `name:"listen" reload:"no" default:"tcp://127.0.0.1:7420" unit:"URLs" help:"Addresses to listen on. gRPC, HTTP and JSON-RPC over websockets on one port: tcp://HOST:PORT on loopback, tls://HOST:PORT with TLS, unix:///PATH. Only gRPC: grpc://HOST:PORT on loopback, grpcs://HOST:PORT with TLS. Only HTTP and websockets: ws://HOST:PORT, wss://HOST:PORT with TLS. JSON-RPC on standard input and output: stdio. Or off, the default if remote is set."`
	// HandshakeTimeout bounds the time until a connection is ready for calls.
	HandshakeTimeout Duration `name:"handshake_timeout" reload:"no" default:"20s" unit:"duration" min:"10ms" max:"5m" help:"How long each step of a new connection may take: until its protocol is known, with the TLS handshake; then the HTTP/2 handshake, or the header of the first HTTP request; for a client of a relay, its first message. Slower connections are closed."`

	// RemoteURL is the registry of the relay.
	RemoteURL string `name:"remote" reload:"no" default:"" unit:"text" help:"The registry of the hub that this server registers with as an executor: https://HOST, or http://HOST:PORT on this host; see docs/remote.md. Empty: none."`
	// ExecutorID is the id in the registry.
	ExecutorID string `name:"executor_id" reload:"no" default:"" unit:"text" help:"The id by which clients of the hub find this server. Required with remote, and only used with it."`
	// ExecutorName is the name in the registry.
	ExecutorName string `name:"executor_name" reload:"no" default:"" unit:"text" help:"The name of this server in the registry, for people. Empty: the host name."`
	// ExecutorLabels are the labels in the registry.
	ExecutorLabels []string `name:"executor_labels" reload:"no" default:"" unit:"names" help:"Labels of this server in the registry, as KEY=VALUE."`
	// RemoteTokenFile has the token for the registry.
	RemoteTokenFile string `name:"remote_token_file" reload:"no" default:"" unit:"path" choices:"/" help:"The token for the registry. Only the server's user may be able to read it. Read again at each registration. Empty: credentials from the environment, or the sign-in of codex; see docs/remote.md."`
	// RemoteCA has the certificate authorities of the relay.
	RemoteCA string `name:"remote_tls_ca" reload:"no" default:"" unit:"path" choices:"/" help:"Certificate authorities of the registry and the rendezvous, as PEM. Empty: those of the system."`
	// AgentIdentity enables assertions of the agent identity.
	AgentIdentity string `name:"agent_identity" reload:"no" default:"off" unit:"choice" choices:"on,off" help:"Whether to send the registry assertions of the agent identity in CODEX_ACCESS_TOKEN instead of a token: on or off."`
	// RelayStreams limits the connections through the relay.
	RelayStreams Count `name:"relay_streams" reload:"no" default:"1024" unit:"streams" min:"1" max:"100000" help:"Concurrent connections of clients through the relay. Further ones are refused."`
	// RelaySilence is how long such a connection may be silent.
	RelaySilence Duration `name:"relay_silence_timeout" reload:"no" default:"30s" unit:"duration" min:"1s" max:"10m" help:"How long a relay client may be silent, connected or not, until its connection counts as lost and the grace period of its session begins. A third of it after the last message the server asks for a sign of life."`

	// TLSCertificate is the server's certificate chain.
	TLSCertificate string `name:"tls_cert" reload:"yes" default:"" unit:"path" help:"The certificate chain of tls://, grpcs:// and wss:// listeners, as PEM. Read again when it changes."`
	// TLSKey is the private key of TLSCertificate.
	TLSKey string `name:"tls_key" reload:"yes" default:"" unit:"path" help:"Its private key, as PEM. Only the server's user may be able to read it. Read again when it changes."`
	// TLSClientCA has the authorities of client certificates.
	TLSClientCA string `name:"tls_ca" reload:"yes" default:"" unit:"path" help:"The authorities whose client certificates are accepted, as PEM. Empty accepts none. Read again when it changes."`
	// Principals is the table of principals.
	Principals string `name:"principals_file" reload:"no" default:"" unit:"path" help:"The table of principals, their credentials and permissions; see docs/security.md. Empty: every caller on a unix socket, users in loopback_users on loopback, and clients that ws_auth accepts may make every call. Read again when it changes."`
	// LoopbackUsers are accepted on loopback without a credential.
	LoopbackUsers []string `name:"loopback_users" reload:"no" default:"same" unit:"names" help:"Users, by name or number, whose processes are accepted on loopback without a token or certificate, beside the server's user and root. same: no others. any: all users, who can then run commands as the server's user."`
	// SignedURLKeys has the keys of signed URLs.
	SignedURLKeys string `name:"signed_url_key_file" reload:"no" default:"" unit:"path" choices:"/" help:"The keys of signed URLs of files, one in each line, of at least 32 bytes: the first signs, and all are accepted. URLs end when their key is removed. Only the server's user may be able to read it. Read again when it changes. Empty: a random key, so that all URLs end with the server."`
	// SignedURLMaxAge limits the lifetime of signed URLs.
	SignedURLMaxAge Duration `name:"signed_url_max_age" reload:"yes" default:"1h" unit:"duration" min:"1s" max:"168h" help:"The longest time for which a URL of a file can be signed. A request for more is refused."`
	// FailedAttempts limits failed authentication per address.
	FailedAttempts Count `name:"failed_attempts" reload:"yes" default:"10" unit:"attempts" min:"1" max:"10000" help:"Failed attempts to authenticate that one address may make before further ones are refused."`
	// FailedAttemptInterval is how fast failed attempts expire.
	FailedAttemptInterval Duration `name:"failed_attempt_interval" reload:"yes" default:"2s" unit:"duration" min:"10ms" max:"1h" help:"The time after which one failed attempt of an address is forgiven."`

	// AuditFile is the audit log.
	AuditFile string `name:"audit_file" reload:"no" default:"" unit:"path" choices:"/" help:"The audit log, to which who did what, and what was denied, is appended as JSON; see docs/audit.md. It is created with mode 0600; a file that others can write is refused. Empty: none."`
	// AuditArgv is what the audit log has of arguments.
	AuditArgv string `name:"audit_argv" reload:"no" default:"full" unit:"choice" choices:"full,digest,off" help:"What the audit log has of the arguments of processes, which can have secrets: full, with their SHA-256; digest, only that; or off."`
	// AuditReads adds reads of files to the audit log.
	AuditReads string `name:"audit_reads" reload:"no" default:"off" unit:"choice" choices:"on,off" help:"Whether the audit log has reads of files and directories, too: on or off."`
	// AuditFileBytes is the size at which the audit log is rotated.
	AuditFileBytes Bytes `name:"audit_file_bytes" reload:"no" default:"64MiB" unit:"bytes" min:"0" max:"1024GiB" help:"The size at which the audit log is renamed to audit_file with .1 and begun again. 0: never, for another program that rotates it."`
	// AuditFiles is how many rotated audit logs are kept.
	AuditFiles Count `name:"audit_files" reload:"no" default:"10" unit:"files" min:"1" max:"10000" help:"How many rotated audit logs are kept: .1 is the newest."`
	// AuditSync is when the audit log is written to the disk.
	AuditSync string `name:"audit_fsync" reload:"no" default:"interval" unit:"choice" choices:"off,each,interval" help:"When the audit log is synchronized with the disk: off, by the system; each, each record, before the action that it is about; interval, every second."`
	// AuditFailure is what happens if the audit log cannot be written.
	AuditFailure string `name:"audit_failure" reload:"no" default:"refuse" unit:"choice" choices:"refuse,drop" help:"What happens to an action whose record cannot be written, for example because the disk is full: refuse it, or do it, drop the record and count it."`

	// RecordingDirectory has the recordings of terminals.
	RecordingDirectory string `name:"recording_directory" reload:"no" default:"" unit:"path" choices:"/" help:"The directory of the recordings of terminals of principals with record = \"terminals\" in the principals_file; see docs/recordings.md. It is created with mode 0700; one that others can write is refused. Empty: none, and recording_failure says what happens to those terminals."`
	// RecordingFileBytes is the size after which a recording goes on in another file.
	RecordingFileBytes Bytes `name:"recording_file_bytes" reload:"no" default:"64MiB" unit:"bytes" min:"64KiB" max:"1024GiB" help:"The size after which the recording of a terminal goes on in another file."`
	// RecordingTotal limits all recordings.
	RecordingTotal Bytes `name:"recording_bytes_total" reload:"no" default:"4GiB" unit:"bytes" min:"1MiB" max:"1024TiB" help:"The size of all recordings in recording_directory. Beyond it they cannot be written, see recording_failure, until some are moved away: the server removes none."`
	// RecordingFailure is what happens if a recording cannot be written.
	RecordingFailure string `name:"recording_failure" reload:"no" default:"refuse" unit:"choice" choices:"refuse,drop" help:"What happens to a process whose terminal is to be recorded and cannot be, for example because the disk is full: refuse to start it, and terminate it if it runs; or drop the recording, count it, and let the process go on."`

	// RetainedOutput limits the retained output of a process.
	RetainedOutput Bytes `name:"retained_output_bytes_per_process" reload:"yes" default:"1MiB" unit:"bytes" min:"64KiB" max:"1GiB" help:"Retained output per process, over all its streams."`
	// RetainedEvents limits the retained events of a process.
	RetainedEvents Count `name:"retained_events" reload:"yes" default:"50000" unit:"events" min:"100" max:"10000000" help:"Retained events per process."`
	// Window limits unacknowledged output; 0 is RetainedOutput.
	Window Bytes `name:"window_bytes" reload:"yes" default:"0" unit:"bytes" min:"0" max:"1GiB" help:"Output of a process that its owner may leave unacknowledged before the process blocks. 0: retained_output_bytes_per_process, which is also the maximum."`
	// OutputDirectory is where output without an owner goes.
	OutputDirectory string `name:"output_directory" reload:"no" default:"" unit:"path" choices:"/" help:"Where files are for output: of processes without an owner, such as detached ones, what nobody has acknowledged and is beyond retained_output_bytes_per_process, and of closed processes all that is kept. The files have no names, and end with the server. It is created with mode 0700 if it does not exist. Empty: the directory in TMPDIR, or /var/tmp, or /tmp if that cannot be written."`
	// OutputFile limits the file of a process.
	OutputFile Bytes `name:"output_file_bytes_per_process" reload:"yes" default:"64MiB" unit:"bytes" min:"0" max:"1024GiB" help:"Output per process that is kept in a file, of one without an owner and of a closed one. 0: none."`
	// OutputFileTotal limits the files of all processes.
	OutputFileTotal Bytes `name:"output_file_bytes_total" reload:"yes" default:"4GiB" unit:"bytes" min:"0" max:"1024GiB" help:"Output of all processes in files, that of closed ones included until their records are removed. A twentieth of the file system is left free in any case. 0: none."`
	// Snapshot limits head and tail of each stream.
	Snapshot Bytes `name:"snapshot_bytes" reload:"yes" default:"64KiB" unit:"bytes" min:"1KiB" max:"16MiB" help:"Size of the head and of the tail of each stream for SnapshotOutput."`
	// Readers limits the readers of one process.
	Readers Count `name:"readers_per_process" reload:"yes" default:"64" unit:"readers" min:"1" max:"10000" help:"Concurrent readers of one process."`
	// StdinWrite limits one write to stdin.
	StdinWrite Bytes `name:"stdin_write_bytes" reload:"no" default:"1MiB" unit:"bytes" min:"4KiB" max:"3MiB" help:"The largest single write to a process's stdin."`
	// StdinQueue limits the queued input of a process.
	StdinQueue Bytes `name:"stdin_queue_bytes" reload:"no" default:"1MiB" unit:"bytes" min:"4KiB" max:"64MiB" help:"Bytes queued for a process's stdin before writers wait. At least stdin_write_bytes."`
	// Message limits one incoming message.
	Message Bytes `name:"message_bytes" reload:"no" default:"4MiB" unit:"bytes" min:"4MiB" max:"64MiB" help:"The largest message that the server accepts."`
	// ReadFile limits the files that ReadFile returns.
	ReadFile Bytes `name:"read_file_bytes" reload:"no" default:"3MiB" unit:"bytes" min:"64KiB" max:"60MiB" help:"The largest file that ReadFile returns, in one message; gRPC clients accept 4MiB by default. Larger files need DownloadFile."`
	// UploadRetention is how long interrupted uploads are kept.
	UploadRetention Duration `name:"upload_retention" reload:"no" default:"10m" unit:"duration" min:"1s" max:"24h" help:"How long the data of an interrupted upload is kept on disk, so that another stream can continue it."`
	// Uploads limits the active uploads of one principal.
	Uploads Count `name:"uploads_per_principal" reload:"no" default:"512" unit:"uploads" min:"1" max:"10000" help:"Concurrent uploads with an id of one principal. Further ones are refused until one has ended. Each uses two descriptors."`
	// AbandonedUploads limits the interrupted uploads of one principal.
	AbandonedUploads Count `name:"abandoned_uploads_per_principal" reload:"no" default:"64" unit:"uploads" min:"1" max:"10000" help:"Interrupted uploads of one principal that are kept for upload_retention; the oldest is dropped for another one. Each uses two descriptors. As many completed ones are remembered, so that a lost answer can be repeated."`
	// Watches limits the watches of one principal.
	Watches Count `name:"watches_per_principal" reload:"no" default:"1000" unit:"watches" min:"1" max:"100000" help:"Directories that one principal may watch at once, each with those below it. Further watches are refused."`
	// WatchedDirectories limits the directories of one watch.
	WatchedDirectories Count `name:"watched_directories_per_watch" reload:"no" default:"100000" unit:"directories" min:"1" max:"10000000" help:"Directories that one recursive watch may include; the kernel needs about 1KiB for each. A larger tree is refused; directories that are created later are reported as lost. The kernel has a limit of its own: fs.inotify.max_user_watches."`
	// WatchPending limits the unsent changes of one watch.
	WatchPending Bytes `name:"watch_pending_bytes" reload:"no" default:"1MiB" unit:"bytes" min:"4KiB" max:"64MiB" help:"Unsent changes of one watch, and as much again of unprocessed ones. Beyond that, changes are dropped and the client is told to list the tree again."`
	// AwaitedPaths limits the awaited paths of one principal.
	AwaitedPaths Count `name:"awaited_paths_per_principal" reload:"no" default:"100000" unit:"paths" min:"1" max:"10000000" help:"Paths that one principal may await at once, over all its calls of AwaitPaths. Further calls are refused."`
	// Connections limits the connections of one listener.
	Connections Count `name:"connections_per_listener" reload:"yes" default:"1000" unit:"connections" min:"1" max:"1000000" help:"Connections with a principal of one listener. At the limit, the principal with the most loses one to a principal with fewer: the one that has been idle longest or, if all are in use, the least recently used. A further connection of the same principal replaces an idle one, or is refused. There may be an eighth more connections without a principal; the oldest is closed for a new one."`
	// Streams limits the calls of one connection.
	Streams Count `name:"streams_per_connection" reload:"no" default:"2000" unit:"streams" min:"10" max:"100000" help:"Concurrent calls on one gRPC connection, those that run or watch a process and connections to ports included. Clients delay further ones without an error, so keep it above port_connections_per_principal, which is refused with one."`
	// Processes limits the running processes of a session.
	Processes Count `name:"processes_per_session" reload:"yes" default:"1000" unit:"processes" min:"1" max:"1000000" help:"Processes of one session that have not closed."`
	// Sessions limits the sessions of a principal.
	Sessions Count `name:"sessions_per_principal" reload:"yes" default:"1000" unit:"sessions" min:"1" max:"1000000" help:"Leased sessions of one principal."`
	// SessionsTotal limits the sessions of all principals.
	SessionsTotal Count `name:"sessions_total" reload:"yes" default:"10000" unit:"sessions" min:"1" max:"10000000" help:"Leased sessions of all principals. An eighth is reserved for principals that have none, or no more than a 64th."`
	// RetainedTotal limits the retained output of all processes.
	RetainedTotal Bytes `name:"retained_output_bytes_total" reload:"yes" default:"0" unit:"bytes" min:"0" max:"1024GiB" help:"Retained output of all processes. 0: a quarter of the memory of the control group or the machine, at most 2GiB. A process that has not closed counts with the most that it may retain. Records of closed processes without an owner are removed for new processes, first those whose exit was seen, oldest first, but none of another principal that has less. An eighth is reserved for principals that have nothing else, or no more than a 64th, so that no principal can keep another from starting a process."`

	// FileHandles limits the file handles of one session.
	FileHandles Count `name:"file_handles_per_session" reload:"no" default:"256" unit:"handles" min:"1" max:"65536" help:"Open file handles of one session; each is a descriptor of the server. Further ones are refused, and any when half of the server's descriptors (RLIMIT_NOFILE) are open. A JSON-RPC connection has at most 128."`
	// FileHandleIdleTime is how long unused handles of default sessions stay open.
	FileHandleIdleTime Duration `name:"file_handle_idle_time" reload:"no" default:"10m" unit:"duration" min:"1s" max:"24h" help:"How long an unused handle of a default session, which never ends, stays open."`

	// FileWorkers limits the workers for sandboxed file calls of one principal.
	FileWorkers Count `name:"file_workers_per_principal" reload:"no" default:"48" unit:"processes" min:"1" max:"1000" help:"Workers for sandboxed file calls of one principal, one for each policy and session. At the limit the worker that was unused longest is ended. While all are in use, further calls wait; they are refused if watches, handles and active uploads occupy all of them. A worker with only interrupted uploads is ended, and its uploads are dropped."`
	// FileWorkersTotal limits the workers of all principals.
	FileWorkersTotal Count `name:"file_workers_total" reload:"no" default:"64" unit:"processes" min:"1" max:"10000" help:"Workers for sandboxed file calls of all principals, those that are ending included. An eighth is reserved for principals that have none. An idle worker has 4MiB to 7MiB of memory of its own; the rest of its resident memory is the program file, which all share."`
	// FileWorkerIdleTime is how long unused workers are kept.
	FileWorkerIdleTime Duration `name:"file_worker_idle_time" reload:"no" default:"1m" unit:"duration" min:"1s" max:"24h" help:"How long an unused worker for sandboxed file calls is kept."`

	// Cgroup says whether and where control groups are used.
	Cgroup string `name:"cgroup" reload:"no" default:"auto" unit:"choice" choices:"auto,off,/" help:"Whether each process gets a control group, which makes killing it certain. auto: if there is a writable cgroup v2 tree. off: never. A path of a directory in such a tree: there, or the server does not start."`
	// ReservedProcesses are reserved for the server.
	ReservedProcesses Count `name:"reserved_processes" reload:"no" default:"256" unit:"processes" min:"0" max:"100000" help:"Processes and threads reserved for the server, out of the limits of its control group (pids.max) and user (RLIMIT_NPROC), at most half of them. Processes share the rest: by a control group with the controller pids where cgroup provides one, else by a lower RLIMIT_NPROC. 0: none."`
	// OOMScoreAdjust is added to the oom_score_adj of processes.
	OOMScoreAdjust Count `name:"oom_score_adjust" reload:"no" default:"1000" unit:"points" min:"0" max:"1000" help:"Added to the server's oom_score_adj for processes, up to a sum of 1000, so that the kernel kills them before the server when memory runs out. With 1000 always a process, the largest first. With less, a process is killed instead of the server if its memory is larger than the server's minus that many thousandths of all memory. 0: unchanged."`
	// Guardian enables the guardian of execwire serve.
	Guardian string `name:"guardian" reload:"no" default:"on" unit:"choice" choices:"on,off,systemd" help:"Whether execwire serve runs under a guardian that kills all processes if the server is killed: on or off. systemd: without, because the unit, with Type=notify and KillMode=mixed or control-group, does the same; required for socket activation."`
	// DirectExec allows direct commands.
	DirectExec string `name:"allow_direct_exec" reload:"yes" default:"on" unit:"choice" choices:"on,off" help:"Whether to allow direct commands, whose programs the server looks up and to which it applies policies: on or off. With both forms off no process can be started."`
	// PreparedExec allows prepared commands.
	PreparedExec string `name:"allow_prepared_exec" reload:"yes" default:"on" unit:"choice" choices:"on,off" help:"Whether to allow prepared commands, which are executed exactly as the client resolved them: on or off."`

	// SandboxBackends are the backends that may be used.
	SandboxBackends []string `name:"sandbox_backends" reload:"no" default:"auto" unit:"names" help:"Sandbox backends for processes and file calls: a list of bubblewrap and landlock, auto for those that work here, or off. The strongest that can enforce a policy is used; if none can, the request fails."`
	// Bubblewrap is the path of bwrap.
	Bubblewrap string `name:"bubblewrap" reload:"no" default:"" unit:"path" choices:"/" help:"The program bwrap, an absolute path. Empty: the first one in PATH. A program that users other than root and the server's user can replace is not used."`
	// RequiredSandbox confines all processes and file calls.
	RequiredSandbox string `name:"require_sandbox" reload:"no" default:"off" unit:"choice" help:"The sandbox of every process and every file call, which requests can only restrict further: off, read-only, workspace-write, or the absolute path of a file with a SandboxPolicy as protobuf JSON, which only its owner may be able to write. If the server cannot enforce it, it does not start. If it restricts the network, HTTP requests are disabled."`
	// SandboxWritableRoots are writable in it.
	SandboxWritableRoots []string `name:"sandbox_writable_roots" reload:"no" default:"" unit:"paths" help:"Directories that processes and file calls may write to if require_sandbox is workspace-write, beside /tmp and the server's TMPDIR. .git, .agents and .codex in them stay read-only."`
	// SandboxNetwork allows the network in it.
	SandboxNetwork string `name:"sandbox_network" reload:"no" default:"off" unit:"choice" choices:"on,off" help:"Whether the network is allowed if require_sandbox is read-only or workspace-write: on or off."`

	// HeaderList limits the metadata of one call.
	HeaderList Bytes `name:"header_list_bytes" reload:"no" default:"64KiB" unit:"bytes" min:"8KiB" max:"1MiB" help:"The largest metadata of a call, all names and values together. A call with more fails."`

	// Disable names disabled features.
	Disable []string `name:"disable" reload:"no" default:"" unit:"names" help:"Features to disable: http, the HTTP requests that the server makes for clients."`
	// HTTPRequests limits the HTTP requests of one principal.
	HTTPRequests Count `name:"http_requests_per_principal" reload:"yes" default:"1000" unit:"requests" min:"1" max:"100000" help:"Concurrent HTTP requests of one principal, up to the end of their responses. Further ones are refused."`
	// HTTPHead limits the head of one response.
	HTTPHead Bytes `name:"http_head_bytes" reload:"yes" default:"64KiB" unit:"bytes" min:"4KiB" max:"1MiB" help:"The largest head of an HTTP response, interim responses included. A response with a larger one fails."`
	// HTTPConnectionRequests limits the HTTP requests of one JSON-RPC connection.
	HTTPConnectionRequests Count `name:"http_requests_per_connection" reload:"yes" default:"64" unit:"requests" min:"1" max:"10000" help:"Concurrent HTTP requests of one JSON-RPC connection, streamed responses up to their end. Further ones are refused."`
	// ConnectionWatches limits the watches of one JSON-RPC connection.
	ConnectionWatches Count `name:"watches_per_connection" reload:"yes" default:"64" unit:"watches" min:"1" max:"10000" help:"Concurrent watches of directories, missing paths and ports of one JSON-RPC connection. Further ones are refused."`
	// HTTPBuffered limits the buffered responses of one JSON-RPC connection.
	HTTPBuffered Bytes `name:"http_buffered_bytes_per_connection" reload:"yes" default:"64MiB" unit:"bytes" min:"64KiB" max:"1GiB" help:"Bodies of HTTP responses that are answered as a whole, of all requests of one JSON-RPC connection together. A response with more fails; a streamed one has no limit. Over all connections they count for incoming_bytes_total."`

	// PortsAllow lists what clients may connect to.
	PortsAllow []string `name:"ports_allow" reload:"yes" default:"own" unit:"names" help:"What clients may connect to through the server: a list of own, the ports on which processes of the client's session listen; loopback, every port at a loopback address; and HOST:PORT, ADDRESS:PORT or NETWORK/BITS:PORT, with * for every port. IPv6 addresses are in brackets. The server's own listeners, and addresses that HTTP requests do not reach, are always refused. Empty: nothing. If require_sandbox restricts the network, nothing is allowed."`
	// PortConnections limits the connections to ports of one principal.
	PortConnections Count `name:"port_connections_per_principal" reload:"yes" default:"1000" unit:"connections" min:"1" max:"100000" help:"Concurrent connections of one principal to ports, and to ports on which it listens. Further ones are refused."`
	// PortConnectTimeout limits the time to connect to a port.
	PortConnectTimeout Duration `name:"port_connect_timeout" reload:"yes" default:"10s" unit:"duration" min:"10ms" max:"10m" help:"How long establishing a connection to a port may take, with the resolution of a name."`

	// PortsListen says where clients may listen.
	PortsListen string `name:"ports_listen" reload:"yes" default:"loopback" unit:"choice" choices:"off,loopback,any" help:"The addresses of the server's machine on which clients may listen through the server, to forward ports to their own machines: off, none; loopback; or any, which lets other hosts connect to them. Ports of the server's own listeners are refused. If require_sandbox restricts the network, none."`
	// PortListeners limits the ports that one principal listens on.
	PortListeners Count `name:"port_listeners_per_principal" reload:"yes" default:"100" unit:"listeners" min:"1" max:"10000" help:"Ports on which one principal listens at the same time. Further ones are refused."`
	// PortBacklog limits the connections to one of them that wait.
	PortBacklog Count `name:"port_backlog" reload:"yes" default:"128" unit:"connections" min:"1" max:"10000" help:"Connections to one port on which a client listens that may wait for the client to accept them. Further ones are reset. They count for port_connections_per_principal."`
	// PortAcceptTimeout limits the time that each waits.
	PortAcceptTimeout Duration `name:"port_accept_timeout" reload:"yes" default:"10s" unit:"duration" min:"10ms" max:"10m" help:"How long a connection to such a port may wait for the client to accept it. Then it is reset."`

	// DefaultGrace is how long a process is kept whose owner was lost.
	DefaultGrace Duration `name:"default_grace" reload:"yes" default:"30s" unit:"duration" min:"0s" max:"24h" help:"The grace period: how long a process that lost its owner is kept before it is terminated, unless the owner requested another time."`
	// MaxGrace limits the grace that an owner may request.
	MaxGrace Duration `name:"max_grace" reload:"yes" default:"24h" unit:"duration" min:"0s" max:"720h" help:"The longest grace period that an owner may request. At least default_grace."`
	// ClosedRetention is how long records of closed processes are kept whose exit was
	// seen.
	ClosedRetention Duration `name:"closed_process_retention" reload:"yes" default:"30s" unit:"duration" min:"0s" max:"24h" help:"How long the record of a closed process is kept once its exit was seen. Its id stays taken and its output readable."`
	// UnseenRetention is how long they are kept if it was not seen.
	UnseenRetention Duration `name:"unseen_process_retention" reload:"yes" default:"1h" unit:"duration" min:"0s" max:"24h" help:"How long the record of a closed process is kept whose exit was not seen, as that of a detached one. At least closed_process_retention."`
	// UnseenProcesses limits those of each principal.
	UnseenProcesses Count `name:"unseen_processes_per_principal" reload:"yes" default:"10000" unit:"processes" min:"0" max:"1000000" help:"Closed processes of one principal that are kept for longer than closed_process_retention, because their exit was not seen or their start asked for it. Beyond it the oldest are kept for that time only."`
	// UnseenBytes limits them in bytes.
	UnseenBytes Bytes `name:"unseen_process_bytes_per_principal" reload:"yes" default:"256MiB" unit:"bytes" min:"0" max:"1024GiB" help:"The same in bytes of output, arguments and records. 0: only retained_output_bytes_total limits them."`
	// StateDirectory has the records of detached processes.
	StateDirectory string `name:"state_directory" reload:"no" default:"" unit:"path" choices:"/" help:"A directory for what outlives the server: records of detached processes, so that after a restart their exit codes can be read, and those that ran then have the cause server_restarted. It is created with mode 0700, and one server uses it at a time. Empty: nothing outlives the server."`
	// RecordedProcesses limits the records in it.
	RecordedProcesses Count `name:"recorded_processes_per_principal" reload:"no" default:"10000" unit:"processes" min:"1" max:"1000000" help:"Detached processes of one principal that have a record in state_directory, of about 1KiB, at most 64KiB. Beyond it the oldest have none."`
	// MaxKeep limits the keep that a start may request.
	MaxKeep Duration `name:"max_process_retention" reload:"yes" default:"168h" unit:"duration" min:"0s" max:"8760h" help:"The longest keep of a start, as by execwire run --keep: how long the record of a closed process is kept whether its exit was seen or not. 0s refuses starts with keep."`
	// MaxWait limits one blocking call.
	MaxWait Duration `name:"max_wait" reload:"yes" default:"10m" unit:"duration" min:"1s" max:"24h" help:"The longest wait of one ReadOutput or WaitProcess."`
	// ShutdownGrace is how long processes may continue after SIGTERM.
	ShutdownGrace Duration `name:"shutdown_grace_period" reload:"yes" default:"10s" unit:"duration" min:"0s" max:"24h" help:"How long processes may continue after the server began to shut down."`

	// Frame limits one incoming websocket frame.
	Frame Bytes `name:"frame_bytes" reload:"yes" default:"16MiB" unit:"bytes" min:"64KiB" max:"1GiB" help:"The largest websocket frame that is accepted from a JSON-RPC client."`
	// Request limits one incoming JSON-RPC message.
	Request Bytes `name:"request_bytes" reload:"no" default:"64MiB" unit:"bytes" min:"64KiB" max:"1GiB" help:"The largest JSON-RPC message that is accepted, over all its frames."`
	// Requests limits the requests of one JSON-RPC connection.
	Requests Count `name:"requests_per_connection" reload:"yes" default:"1024" unit:"requests" min:"1" max:"100000" help:"Unanswered requests of one JSON-RPC connection. Further ones are refused."`
	// ControlRequests are additional requests that terminate or signal.
	ControlRequests Count `name:"control_requests_per_connection" reload:"yes" default:"64" unit:"requests" min:"1" max:"10000" help:"Additional unanswered requests that terminate, signal and the like."`
	// ConnectionProcesses limits the running processes of one JSON-RPC connection.
	ConnectionProcesses Count `name:"max_processes_per_connection" reload:"yes" default:"0" unit:"processes" min:"0" max:"1000000" help:"Processes of one JSON-RPC connection that have not closed, those of a resumed session included. 0: processes_per_session, which is also the maximum."`
	// Incoming limits the requests of one JSON-RPC connection in bytes.
	Incoming Bytes `name:"incoming_bytes_per_connection" reload:"yes" default:"256MiB" unit:"bytes" min:"64KiB" max:"16GiB" help:"Unanswered requests of one JSON-RPC connection in bytes, one of them not counted. Further ones are refused."`
	// IncomingTotal limits those of all connections, from their first byte.
	IncomingTotal Bytes `name:"incoming_bytes_total" reload:"no" default:"1GiB" unit:"bytes" min:"128KiB" max:"1024GiB" help:"JSON-RPC messages of all connections that are being received or are unanswered, in bytes; the first 64KiB of each connection do not count. At the limit, a connection within its equal share (of its principal's share, and that of all principals) still gets memory, and the slowest connection of the principal that uses most is closed with code 1013; a request of another connection is refused, or its connection closed with code 1013. At least twice request_bytes."`
	// IncomingRate is the rate below which a message counts as stalled.
	IncomingRate Bytes `name:"min_incoming_bytes_per_second" reload:"no" default:"16KiB" unit:"bytes" min:"1" max:"1GiB" help:"Once incoming_bytes_total is reached, a large JSON-RPC message that is received or answered more slowly than this may be ended for any other. No connection is closed for being slow before."`
	// Outgoing limits the unsent refusals of one JSON-RPC connection.
	Outgoing Bytes `name:"outgoing_bytes_per_connection" reload:"yes" default:"1MiB" unit:"bytes" min:"4KiB" max:"1GiB" help:"Unsent refusals for one JSON-RPC client; answers count with their requests. A client that continues to send requests and does not read is disconnected."`
	// AnswersTotal limits the large unsent answers of all connections.
	AnswersTotal Bytes `name:"answer_bytes_total" reload:"no" default:"256MiB" unit:"bytes" min:"4MiB" max:"1024GiB" help:"Unsent JSON-RPC answers with files, directories and output, of all connections, each counted as 4MiB. One of each kind is always allowed for each connection; further ones are prepared when earlier ones were read."`
	// PingInterval is how often websockets are pinged.
	PingInterval Duration `name:"websocket_ping_interval" reload:"yes" default:"30s" unit:"duration" min:"0s" max:"1h" help:"Time between pings to websocket clients. 0s: no pings."`
	// Origins are the accepted values of the Origin header.
	Origins []string `name:"allowed_origins" reload:"yes" default:"" unit:"origins" help:"Accepted values of the Origin header of HTTP requests, for example https://app.example.org. Others are refused, so that web pages cannot connect."`
	// Hosts are further accepted values of the Host header.
	Hosts []string `name:"allowed_hosts" reload:"yes" default:"" unit:"names" help:"Names of this server in the Host header of HTTP requests, without a port, beside IP addresses, localhost and the names of its certificate: for example build.example.org. Requests with others are refused with status 421, so that a web page cannot reach the server by a name of its own (DNS rebinding)."`
	// WebsocketAuth is how websocket clients authenticate.
	WebsocketAuth string `name:"ws_auth" reload:"no" default:"off" unit:"choice" choices:"capability-token,signed-bearer-token,off" help:"Required credentials of clients by HTTP and websockets: capability-token, signed-bearer-token, or off, which leaves it to principals_file."`
	// WebsocketToken has their token.
	WebsocketToken string `name:"ws_token_file" reload:"no" default:"" unit:"path" help:"The token of capability-token. Only the server's user may be able to read it. Read again when it changes."`
	// WebsocketTokenHash is the hash of their token.
	WebsocketTokenHash string `name:"ws_token_sha256" reload:"no" default:"" unit:"text" secret:"true" help:"Or its SHA-256, in hexadecimal."`
	// WebsocketSecret has the secret that signs their tokens.
	WebsocketSecret string `name:"ws_shared_secret_file" reload:"no" default:"" unit:"path" help:"The HS256 secret of signed-bearer-token. Only the server's user may be able to read it. Read again when it changes."`
	// WebsocketIssuer is the required issuer of their tokens.
	WebsocketIssuer string `name:"ws_issuer" reload:"no" default:"" unit:"text" help:"The required iss of signed tokens. Empty: any."`
	// WebsocketAudience is the required audience of their tokens.
	WebsocketAudience string `name:"ws_audience" reload:"no" default:"" unit:"text" help:"What aud of signed tokens must contain. Empty: any."`
	// WebsocketClockSkew is the tolerance for exp and nbf.
	WebsocketClockSkew Duration `name:"ws_max_clock_skew" reload:"no" default:"30s" unit:"duration" min:"0s" max:"1h" help:"The accepted difference to the clock of the issuer of tokens."`

	// KeepaliveInterval is how long a connection may be idle before a probe.
	KeepaliveInterval Duration `name:"keepalive_interval" reload:"no" default:"30s" unit:"duration" min:"1s" max:"1h" help:"How long a connection may be idle before the server sends a keepalive probe."`
	// KeepaliveTimeout is how long the answer to a probe may take.
	KeepaliveTimeout Duration `name:"keepalive_timeout" reload:"no" default:"10s" unit:"duration" min:"1s" max:"10m" help:"How long the answer to a keepalive probe may take before the connection counts as lost."`

	// OTLPEndpoint is the collector of traces.
	OTLPEndpoint string `name:"otlp_endpoint" reload:"no" default:"" unit:"text" help:"The collector of traces (OpenTelemetry, OTLP over gRPC): http://HOST:PORT, or https://HOST:PORT with TLS. Without a port it is 4317. Empty: that of the standard variables OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_EXPORTER_OTLP_TRACES_ENDPOINT if OTEL_EXPORTER_OTLP_PROTOCOL is grpc, otherwise no traces; see docs/traces.md."`
	// OTLPCA has the certificate authorities of the collector.
	OTLPCA string `name:"otlp_tls_ca" reload:"no" default:"" unit:"path" choices:"/" help:"Certificate authorities of the collector, as PEM. Empty: those of the system."`
	// OTLPHeaders has headers for the collector.
	OTLPHeaders string `name:"otlp_headers_file" reload:"no" default:"" unit:"path" choices:"/" help:"Headers of the calls of the collector, as its credentials, one NAME: VALUE in each line. Only the server's user may be able to read it."`
	// TraceRatio is the part of traces that are recorded.
	TraceRatio string `name:"trace_ratio" reload:"no" default:"1" unit:"ratio" help:"The part of the traces that begin here that is recorded, from 0 to 1. A trace that begins at the caller is recorded if the caller records it."`
}

// Bytes is a size. It is written as a number of bytes, or with a unit KiB, MiB
// or GiB.
type Bytes int64

// Count is a number of things.
type Count int64

// Duration is a time span, which [ParseDuration] parses.
type Duration time.Duration

// Default returns the default configuration of a daemon.
func Default() Config {
	var cfg Config
	setDefaults(Values(&cfg))
	return cfg
}

// Validate reports the first setting that is out of its range or contradicts
// another, as an [*Error] that names it.
func (c *Config) Validate() error {
	return firstError(append(checkSettings(Values(c)), c.contradictions()...))
}

// contradictions returns an error for each setting that contradicts another, or has a
// value that depends on more than its type.
func (c *Config) contradictions() (problems []error) {
	add := func(err error) {
		if err != nil {
			problems = append(problems, err)
		}
	}
	if c.MaxGrace < c.DefaultGrace {
		add(&Error{Setting: "max_grace", Problem: "is below default_grace", Fix: "raise it to at least " + c.DefaultGrace.String()})
	}
	if c.RetainedTotal != 0 && c.RetainedTotal < c.RetainedOutput {
		add(&Error{Setting: "retained_output_bytes_total", Problem: "is below retained_output_bytes_per_process",
			Fix: "raise it to at least " + c.RetainedOutput.String() + ", or write 0"})
	}
	if c.StdinQueue < c.StdinWrite {
		add(&Error{Setting: "stdin_queue_bytes", Problem: "is below stdin_write_bytes", Fix: "raise it to at least " + c.StdinWrite.String()})
	}
	if c.IncomingTotal < 2*c.Request {
		add(&Error{Setting: "incoming_bytes_total", Problem: "is below twice request_bytes", Fix: "raise it to at least " + (2 * c.Request).String()})
	}
	add(c.validateWebsocketAuth())
	add(c.validateSandbox())
	add(c.validateRemote())
	problems = append(problems, tracesProblems(c.OTLPEndpoint, c.TraceRatio)...)
	for _, name := range c.Disable {
		if !slices.Contains(disableable, name) {
			add(invalid("disable", name, "what can be switched off is "+strings.Join(disableable, ", ")))
		}
	}
	return problems
}

// switchedOn is a value of settings that are on or off.
const switchedOn = "on"

// HasDirectExec reports whether direct commands are allowed.
func (c *Config) HasDirectExec() bool { return c.DirectExec == switchedOn }

// HasPreparedExec reports whether prepared commands are allowed.
func (c *Config) HasPreparedExec() bool { return c.PreparedExec == switchedOn }

// HasAuditReads reports whether the audit log has reads of files.
func (c *Config) HasAuditReads() bool { return c.AuditReads == switchedOn }

// disableable are the features that can be disabled.
var disableable = []string{DisableHTTP}

// DisableHTTP is the name of HTTP requests in Config.Disable.
const DisableHTTP = "http"

// HasHTTP reports whether HTTP requests are enabled.
func (c *Config) HasHTTP() bool { return !slices.Contains(c.Disable, DisableHTTP) }
