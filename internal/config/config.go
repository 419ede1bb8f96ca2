// Package config holds every setting of the daemon: its name, default, unit,
// range and meaning, in one place. Settings come, later ones winning, from
// their defaults, a TOML file and the environment (EXECWIRE_ and the name in
// upper case), and the command line.
package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Config is a complete configuration. The zero value is not usable: begin with
// [Default]. A field's tags are its documentation; docs/configuration.md is
// made from them. The struct is plain data and safe to copy.
type Config struct {
	// Listen is where the daemon accepts clients.
	Listen []string `name:"listen" default:"grpc://127.0.0.1:7420,ws://127.0.0.1:7421" unit:"URLs" help:"Where clients are accepted. Those of gRPC: grpc://HOST:PORT on loopback, grpcs://HOST:PORT with TLS, unix:///PATH. Those of JSON-RPC: ws://HOST:PORT, wss://HOST:PORT with TLS, stdio. Or off, which is the default where remote_url is set."`

	// RemoteURL is the registry of the relay by which the daemon is reached.
	RemoteURL string `name:"remote_url" default:"" unit:"text" help:"The registry of the relay that this server is reached through, as an executor of it: https://HOST, or http://HOST:PORT on this host; see docs/remote.md. Empty is none."`
	// ExecutorID is what the executor is found by there.
	ExecutorID string `name:"executor_id" default:"" unit:"text" help:"What clients of the relay find this server by. Has no effect without remote_url, which needs it."`
	// ExecutorName is what people call it.
	ExecutorName string `name:"executor_name" default:"" unit:"text" help:"What the registry shows people beside that. Empty is the name of this host."`
	// ExecutorLabels are what it is described by.
	ExecutorLabels []string `name:"executor_labels" default:"" unit:"names" help:"What the registry describes this server by, as KEY=VALUE."`
	// RemoteTokenFile is the file of the token for the registry.
	RemoteTokenFile string `name:"remote_token_file" default:"" unit:"path" help:"The token that is shown to the registry. Nobody but the server's user may be able to read it. Read again at each registration. Empty uses what the environment has, or the sign-in of codex; see docs/remote.md."`
	// RemoteCA is the file of the authorities that the relay's certificates are from.
	RemoteCA string `name:"remote_ca_file" default:"" unit:"path" help:"The authorities whose certificates the registry and the rendezvous may have, as PEM. Empty trusts those that this machine does."`
	// AgentIdentity is whether an agent's identity is shown to the registry.
	AgentIdentity string `name:"agent_identity" default:"off" unit:"choice" help:"Whether the registry is shown assertions of the agent whose identity is in CODEX_ACCESS_TOKEN, in place of a token: on or off."`
	// RelayStreams bounds the connections through the relay.
	RelayStreams Count `name:"relay_streams" default:"1024" unit:"streams" min:"1" max:"100000" help:"Connections of clients that come through the relay at once. Further ones are refused."`
	// RelaySilence is how long such a connection may be silent.
	RelaySilence Duration `name:"relay_silence_timeout" default:"30s" unit:"duration" min:"1s" max:"10m" help:"How long nothing may come of a client through the relay, with the websocket there or not, until its connection counts as lost and the grace of its session begins. A third of it after the last message clients are asked for a sign of life."`

	// TLSCertificate is the server's certificate chain.
	TLSCertificate string `name:"tls_certificate_file" default:"" unit:"path" help:"The certificate chain of grpcs:// and wss:// listeners, as PEM. Read again when it changes."`
	// TLSKey is the key to it.
	TLSKey string `name:"tls_key_file" default:"" unit:"path" help:"The private key to it, as PEM. Nobody but the server's user may be able to read it. Read again when it changes."`
	// TLSClientCA is who signs clients' certificates.
	TLSClientCA string `name:"tls_client_ca_file" default:"" unit:"path" help:"The authorities whose client certificates are accepted, as PEM. Empty accepts none. Read again when it changes."`
	// Principals is the table of who may call what.
	Principals string `name:"principals_file" default:"" unit:"path" help:"The table of principals: who is let in by what, and what each may call; see docs/security.md. Empty lets everybody on unix sockets call everything, those of loopback_users on loopback, and whoever ws_auth lets in. Read again when it changes."`
	// LoopbackUsers are who is accepted on loopback without a credential.
	LoopbackUsers []string `name:"loopback_users" default:"same" unit:"names" help:"Users whose processes are accepted on loopback without a token or a certificate, beside the server's user and root, who always are: names or numbers. same adds none; any accepts the processes of all users, who then run commands as the server's user."`
	// FailedAttempts bounds failed authentication per address.
	FailedAttempts Count `name:"failed_attempts" default:"10" unit:"attempts" min:"1" max:"10000" help:"Failed attempts to authenticate that one address may make before more are refused."`
	// FailedAttemptInterval is how fast an address is forgiven.
	FailedAttemptInterval Duration `name:"failed_attempt_interval" default:"2s" unit:"duration" min:"10ms" max:"1h" help:"How long it takes until a failed attempt of an address is forgiven."`

	// RetainedOutput bounds the output kept per process.
	RetainedOutput Bytes `name:"retained_output_bytes_per_process" default:"1MiB" unit:"bytes" min:"64KiB" max:"1GiB" help:"Output kept per process, over all its streams."`
	// RetainedEvents bounds the events kept per process.
	RetainedEvents Count `name:"retained_events" default:"50000" unit:"events" min:"100" max:"10000000" help:"Events kept per process."`
	// Window bounds the output its owner has not acknowledged.
	Window Bytes `name:"window_bytes" default:"0" unit:"bytes" min:"0" max:"1GiB" help:"Output that the owner of a process may leave unacknowledged before the process blocks. 0 means retained_output_bytes_per_process, and it is never more."`
	// Snapshot bounds head and tail of each stream.
	Snapshot Bytes `name:"snapshot_bytes" default:"64KiB" unit:"bytes" min:"1KiB" max:"16MiB" help:"Head and tail kept per stream for SnapshotOutput, each."`
	// Readers bounds the readers of one process.
	Readers Count `name:"readers_per_process" default:"64" unit:"readers" min:"1" max:"10000" help:"Readers that may watch one process at once."`
	// StdinWrite bounds one write to stdin.
	StdinWrite Bytes `name:"stdin_write_bytes" default:"1MiB" unit:"bytes" min:"4KiB" max:"3MiB" help:"The largest single write to a process's stdin."`
	// StdinQueue bounds what waits for a process to read it.
	StdinQueue Bytes `name:"stdin_queue_bytes" default:"1MiB" unit:"bytes" min:"4KiB" max:"64MiB" help:"Bytes queued for a process's stdin before writers wait. At least stdin_write_bytes."`
	// Message bounds one incoming message.
	Message Bytes `name:"message_bytes" default:"4MiB" unit:"bytes" min:"4MiB" max:"64MiB" help:"The largest message the server takes."`
	// ReadFile bounds the files that are read in one message.
	ReadFile Bytes `name:"read_file_bytes" default:"3MiB" unit:"bytes" min:"64KiB" max:"60MiB" help:"The largest file that ReadFile returns, in one message: clients of gRPC take 4MiB unless they are told otherwise. Larger ones are downloaded as a stream."`
	// UploadRetention is how long unfinished uploads stay.
	UploadRetention Duration `name:"upload_retention" default:"10m" unit:"duration" min:"1s" max:"24h" help:"How long what was received of an upload is kept after its stream was cut, so that another one can go on with it. Its space on the disk is taken for that long."`
	// Uploads bounds those of one principal.
	Uploads Count `name:"uploads_per_principal" default:"512" unit:"uploads" min:"1" max:"10000" help:"Uploads with an id, which can be gone on with, that one principal may send at once. Further ones are refused until one has ended. Each has two files open."`
	// AbandonedUploads bounds those that no stream brings.
	AbandonedUploads Count `name:"abandoned_uploads_per_principal" default:"64" unit:"uploads" min:"1" max:"10000" help:"Unfinished uploads of one principal whose stream has ended that are kept for upload_retention, so that another one can go on with them. Beyond that the oldest is dropped. Each has two files open. As many completed ones are remembered, so that an answer that was lost can be had again."`
	// Watches bounds the watches of directories of one principal.
	Watches Count `name:"watches_per_principal" default:"1000" unit:"watches" min:"1" max:"100000" help:"Directories that one principal may watch at once, each with those below it. Further watches are refused."`
	// WatchedDirectories bounds one watch.
	WatchedDirectories Count `name:"watched_directories_per_watch" default:"100000" unit:"directories" min:"1" max:"10000000" help:"Directories that one recursive watch reaches, of each of which the kernel keeps about 1KiB. A tree that has more is refused; those that come later are told as lost. The kernel has bounds of its own: fs.inotify.max_user_watches."`
	// WatchPending bounds what waits to be told of one watch.
	WatchPending Bytes `name:"watch_pending_bytes" default:"1MiB" unit:"bytes" min:"4KiB" max:"64MiB" help:"Changes that may wait for the client of one watch to read them, and as much again for the server to look at them. Beyond that changes are dropped and the client is told to look at everything again."`
	// AwaitedPaths bounds the paths that one principal waits for.
	AwaitedPaths Count `name:"awaited_paths_per_principal" default:"100000" unit:"paths" min:"1" max:"10000000" help:"Paths that one principal may await at once, over all its calls of AwaitPaths. Further calls are refused."`
	// Connections bounds the connections of one listener.
	Connections Count `name:"connections_per_listener" default:"1000" unit:"connections" min:"1" max:"1000000" help:"Connections that principals have of one listener at once. When there are as many, the principal with the most gives one up to another principal: the one that is idle for longest or, if all are in use, the one that was used least recently. A further one of the same principal takes the place of one that is idle, or is refused. An eighth more connections may be there on which no principal is authenticated yet: the oldest gives way."`
	// Streams bounds the calls of one connection.
	Streams Count `name:"streams_per_connection" default:"1000" unit:"streams" min:"10" max:"100000" help:"Calls that one connection may have open at once, those that run or watch a process among them. Clients hold further ones back until others end."`
	// Processes bounds the running processes of a session.
	Processes Count `name:"processes_per_session" default:"1000" unit:"processes" min:"1" max:"1000000" help:"Processes of one session that have not closed."`
	// Sessions bounds the sessions of a principal.
	Sessions Count `name:"sessions_per_principal" default:"1000" unit:"sessions" min:"1" max:"1000000" help:"Leased sessions of one principal."`
	// SessionsTotal bounds the sessions of all principals.
	SessionsTotal Count `name:"sessions_total" default:"10000" unit:"sessions" min:"1" max:"10000000" help:"Leased sessions of all principals together. Of an eighth of them a principal gets one only while it has none, or no more than a 64th."`
	// RetainedTotal bounds what is kept of all processes.
	RetainedTotal Bytes `name:"retained_output_bytes_total" default:"0" unit:"bytes" min:"0" max:"1024GiB" help:"Output kept of all processes of the server. 0 is a quarter of the memory that the server may have, by its control groups and of the machine, and 2GiB at most. A process that has not closed counts as much as may be kept of it; records of closed ones that nobody owns give way to new processes, first those whose exit was seen, oldest first. Of an eighth of it a principal gets something only while it has nothing else, or no more than a 64th, so that no principal keeps another from starting a process."`
	// Spool bounds what is spooled for a session.
	Spool Bytes `name:"spool_bytes" default:"256MiB" unit:"bytes" min:"1MiB" max:"1024GiB" help:"Output that is spooled to a file for one session while nobody is attached to it."`
	// SpoolDirectory is where that file is.
	SpoolDirectory string `name:"spool_directory" default:"" unit:"path" help:"Where such files are made, without a name. Empty is the directory for temporary files."`

	// FileHandles bounds the handles of open files of one session.
	FileHandles Count `name:"file_handles_per_session" default:"256" unit:"handles" min:"1" max:"65536" help:"Handles of open files of one session, each of which is a file descriptor of the server. Further ones are refused, and any when half of the descriptors that the server may have (RLIMIT_NOFILE) are open. A JSON-RPC connection has at most 128 of its own."`
	// FileHandleIdleTime is how long handles of default sessions stay.
	FileHandleIdleTime Duration `name:"file_handle_idle_time" default:"10m" unit:"duration" min:"1s" max:"24h" help:"How long a handle of a default session, which never ends, stays open without being used."`

	// FileHelpers bounds the helpers for sandboxed calls about files of one principal.
	FileHelpers Count `name:"file_helpers_per_principal" default:"48" unit:"processes" min:"1" max:"1000" help:"Helper processes that make sandboxed calls about files for one principal, one for each policy and session; calls that name no session are those of the default session. When there are as many, the one gives way that nobody has used for the longest time. While all are in use further calls wait their turn; they are refused while all are held by watches, handles of files and uploads that are being sent. Those that only have unfinished uploads whose stream has ended give way, and the uploads with them."`
	// FileHelpersTotal bounds the helpers of all principals.
	FileHelpersTotal Count `name:"file_helpers_total" default:"64" unit:"processes" min:"1" max:"10000" help:"Helper processes for sandboxed calls about files of all principals together, with those that are about to end. Of an eighth of them a principal gets one only while it has none. One that is idle has 4MiB to 7MiB of memory of its own; the rest of what is resident is the file of this program, which all share."`
	// FileHelperIdleTime is how long helpers stay that nobody uses.
	FileHelperIdleTime Duration `name:"file_helper_idle_time" default:"1m" unit:"duration" min:"1s" max:"24h" help:"How long a helper process for sandboxed calls about files stays that nobody uses."`

	// Cgroup is whether and where control groups are used.
	Cgroup string `name:"cgroup" default:"auto" unit:"choice" help:"Whether processes get control groups of their own, which makes killing them certain: auto uses a writable cgroup v2 tree if there is one, off does without, and a path (of a directory in such a tree) uses that or refuses to start."`
	// ReservedProcesses are those that users' processes do not get.
	ReservedProcesses Count `name:"reserved_processes" default:"256" unit:"processes" min:"0" max:"100000" help:"Processes and threads that the server keeps for itself of those that its control group (pids.max) and its user (RLIMIT_NPROC) may have, at most half of them. Processes share the rest: by a control group of their own where cgroup gives them one with the controller pids, else by a lower RLIMIT_NPROC. 0 reserves none."`
	// OOMScoreAdjust has processes killed before the server.
	OOMScoreAdjust Count `name:"oom_score_adjust" default:"1000" unit:"points" min:"0" max:"1000" help:"What is added to the server's oom_score_adj for processes, up to 1000 in all, so that the kernel kills them before the server when memory runs out: with 1000 always, the largest first; with less a process is killed instead of the server if it has more than the server less so many thousandths of the memory. 0 adds nothing."`
	// Guardian is whether serve runs under a guardian.
	Guardian string `name:"guardian" default:"on" unit:"choice" help:"Whether execwire serve runs under a guardian that ends all processes should the server be killed: on or off."`
	// DirectExec is whether direct commands are started.
	DirectExec string `name:"allow_direct_exec" default:"on" unit:"choice" help:"Whether direct commands are started, whose programs the server looks up and to which it applies policies: on or off. With both forms off no process is started."`
	// PreparedExec is whether prepared commands are started.
	PreparedExec string `name:"allow_prepared_exec" default:"on" unit:"choice" help:"Whether prepared commands are started, which are executed exactly as a client has resolved them: on or off."`

	// SandboxBackends are what sandboxes are made with.
	SandboxBackends []string `name:"sandbox_backends" default:"auto" unit:"names" help:"What confines processes and calls about files: a list out of bubblewrap and landlock, auto for whichever of them works here, or off. The strongest that can enforce a policy is used; a request that none can is refused."`
	// Bubblewrap is the program that one of them is.
	Bubblewrap string `name:"bubblewrap" default:"" unit:"path" help:"The program bwrap, an absolute path. Empty is the first one in PATH. One that others than root and the server's user can replace is not used."`
	// RequiredSandbox confines everything.
	RequiredSandbox string `name:"require_sandbox" default:"off" unit:"choice" help:"The sandbox of every process and every call about files, which requests narrow and never widen: off, read-only, workspace-write, or the absolute path of a file with a SandboxPolicy as JSON of protobuf, which nobody but its owner may be able to write. A server that cannot enforce it does not start. If it restricts the network, no requests over HTTP are made for clients."`
	// SandboxWritableRoots is what may be written to in it.
	SandboxWritableRoots []string `name:"sandbox_writable_roots" default:"" unit:"paths" help:"The directories that processes and calls about files may write to if require_sandbox is workspace-write, beside /tmp and the server's TMPDIR. What is named .git, .agents or .codex in them stays read-only."`
	// SandboxNetwork is whether the network is reached from it.
	SandboxNetwork string `name:"sandbox_network" default:"off" unit:"choice" help:"Whether the network is reached if require_sandbox is read-only or workspace-write: on or off."`

	// HeaderList bounds the metadata of one call.
	HeaderList Bytes `name:"header_list_bytes" default:"64KiB" unit:"bytes" min:"8KiB" max:"1MiB" help:"The largest metadata of a call, all names and values together. A call with more fails."`

	// Disable is what is switched off.
	Disable []string `name:"disable" default:"" unit:"names" help:"What is switched off: http, requests over HTTP made for clients from where the server is."`
	// HTTPRequests bounds the requests over HTTP of one principal.
	HTTPRequests Count `name:"http_requests_per_principal" default:"1000" unit:"requests" min:"1" max:"100000" help:"Requests over HTTP that one principal may have under way at once, up to the end of their responses. Further ones are refused."`
	// HTTPHead bounds the head of one response.
	HTTPHead Bytes `name:"http_head_bytes" default:"64KiB" unit:"bytes" min:"4KiB" max:"1MiB" help:"The largest head of a response over HTTP, those of interim responses counted. A larger one fails."`
	// HTTPConnectionRequests bounds the requests over HTTP of one JSON-RPC connection.
	HTTPConnectionRequests Count `name:"http_requests_per_connection" default:"64" unit:"requests" min:"1" max:"10000" help:"Requests over HTTP of one JSON-RPC connection that may be under way at once, streamed responses up to their end. Further ones are refused."`
	// ConnectionWatches bounds the watches of one JSON-RPC connection.
	ConnectionWatches Count `name:"watches_per_connection" default:"64" unit:"watches" min:"1" max:"10000" help:"Watches of directories and of missing paths of one JSON-RPC connection that may be there at once. Further ones are refused."`
	// HTTPBuffered bounds the responses that are gathered for one JSON-RPC connection.
	HTTPBuffered Bytes `name:"http_buffered_bytes_per_connection" default:"64MiB" unit:"bytes" min:"64KiB" max:"1GiB" help:"Bytes of the bodies of responses over HTTP that are answered whole, of all requests of one JSON-RPC connection together. A response with more fails; one that is streamed has no bound. Across connections they count for incoming_bytes_total."`

	// DefaultGrace is how long a process outlives the loss of its owner.
	DefaultGrace Duration `name:"default_grace" default:"30s" unit:"duration" min:"0s" max:"24h" help:"How long a process that lost its owner is kept before it is terminated, unless the owner asked for another time."`
	// MaxGrace bounds what an owner may ask for.
	MaxGrace Duration `name:"max_grace" default:"24h" unit:"duration" min:"0s" max:"720h" help:"The longest grace an owner may ask for. At least default_grace."`
	// ClosedRetention is how long records of closed processes stay whose exit was seen.
	ClosedRetention Duration `name:"closed_process_retention" default:"30s" unit:"duration" min:"0s" max:"24h" help:"How long the record of a closed process is kept once its exit was seen, its id taken and its output readable."`
	// UnseenRetention is how long the others stay.
	UnseenRetention Duration `name:"unseen_process_retention" default:"1h" unit:"duration" min:"0s" max:"24h" help:"How long the record of a closed process is kept whose exit nobody has seen, as that of a detached one. Never less than closed_process_retention."`
	// UnseenProcesses is how many of those each principal may have.
	UnseenProcesses Count `name:"unseen_processes_per_principal" default:"1000" unit:"processes" min:"0" max:"1000000" help:"Closed processes of one principal whose exit nobody has seen that are kept for longer than closed_process_retention. Beyond it the oldest are kept for that long only."`
	// MaxWait bounds one blocking call.
	MaxWait Duration `name:"max_wait" default:"10m" unit:"duration" min:"1s" max:"24h" help:"The longest wait of one ReadOutput or WaitProcess."`
	// ShutdownGrace is how long processes may go on after SIGTERM.
	ShutdownGrace Duration `name:"shutdown_grace_period" default:"10s" unit:"duration" min:"0s" max:"24h" help:"How long processes may go on after the server was told to stop."`

	// Frame bounds one incoming websocket frame.
	Frame Bytes `name:"frame_bytes" default:"16MiB" unit:"bytes" min:"64KiB" max:"1GiB" help:"The largest websocket frame that is taken from a client of JSON-RPC."`
	// Request bounds one incoming JSON-RPC message.
	Request Bytes `name:"request_bytes" default:"64MiB" unit:"bytes" min:"64KiB" max:"1GiB" help:"The largest JSON-RPC message that is taken, over all its frames."`
	// Requests bounds the requests of one JSON-RPC connection.
	Requests Count `name:"requests_per_connection" default:"1024" unit:"requests" min:"1" max:"100000" help:"Requests of one JSON-RPC connection that may be unanswered at once. Further ones are refused."`
	// ControlRequests are kept free for what must not wait.
	ControlRequests Count `name:"control_requests_per_connection" default:"64" unit:"requests" min:"1" max:"10000" help:"Requests beside those that may be unanswered at once if they are for terminating, signalling and the like."`
	// ConnectionProcesses bounds the running processes of one JSON-RPC connection.
	ConnectionProcesses Count `name:"max_processes_per_connection" default:"0" unit:"processes" min:"0" max:"1000000" help:"Processes of one JSON-RPC connection that have not closed, those among them that the session which it resumes had before. 0 leaves it to processes_per_session, and it is never more."`
	// Incoming bounds the requests of one JSON-RPC connection in bytes.
	Incoming Bytes `name:"incoming_bytes_per_connection" default:"256MiB" unit:"bytes" min:"64KiB" max:"16GiB" help:"Bytes of all unanswered requests of one JSON-RPC connection together, one excepted. Further ones are refused."`
	// IncomingTotal bounds those of all of them, from their first byte.
	IncomingTotal Bytes `name:"incoming_bytes_total" default:"1GiB" unit:"bytes" min:"128KiB" max:"1024GiB" help:"Bytes of JSON-RPC messages that are being received or unanswered on all connections together, but for the first 64KiB of each connection. When it is reached, a connection within its equal share (of that of its principal, and that of all principals) still gets it, and the slowest connection of the heaviest principal is disconnected with code 1013; another is refused, or disconnected with code 1013. At least twice request_bytes."`
	// IncomingRate is the rate below which a message counts as stalled.
	IncomingRate Bytes `name:"min_incoming_bytes_per_second" default:"16KiB" unit:"bytes" min:"1" max:"1GiB" help:"The rate in bytes per second below which a large JSON-RPC message that is being received, or answered, gives way to any other once incoming_bytes_total is reached. Nothing is slow enough to be ended while it is not."`
	// Outgoing bounds what waits to be read by one JSON-RPC client.
	Outgoing Bytes `name:"outgoing_bytes_per_connection" default:"1MiB" unit:"bytes" min:"4KiB" max:"1GiB" help:"Refusals that may wait for one client of JSON-RPC to read them; answers wait with their requests. A client that goes on asking and does not read is disconnected."`
	// AnswersTotal bounds large answers that wait to be read by all of them.
	AnswersTotal Bytes `name:"answer_bytes_total" default:"256MiB" unit:"bytes" min:"4MiB" max:"1024GiB" help:"Answers of JSON-RPC with files, directories and output that may wait in memory for the clients of all connections to read them, each taken for 4MiB. One of each kind may always wait for each connection; further ones are prepared when those before them were read."`
	// PingInterval is how often websockets are pinged.
	PingInterval Duration `name:"websocket_ping_interval" default:"30s" unit:"duration" min:"0s" max:"1h" help:"Time between pings to clients of websockets. 0s sends none."`
	// Origins are the browsers' that are let in.
	Origins []string `name:"allowed_origins" default:"" unit:"origins" help:"Values of the Origin header with which requests to ws:// and wss:// listeners are let in, for example https://app.example.org. Any other is refused, so that web pages cannot connect."`
	// WebsocketAuth is how clients of websockets show that they may come in.
	WebsocketAuth string `name:"ws_auth" default:"off" unit:"choice" help:"What clients of ws:// and wss:// listeners have to show: capability-token, signed-bearer-token, or off, which leaves it to principals_file."`
	// WebsocketToken is the file of their token.
	WebsocketToken string `name:"ws_token_file" default:"" unit:"path" help:"The token of capability-token. Nobody but the server's user may be able to read it. Read again when it changes."`
	// WebsocketTokenHash is its hash.
	WebsocketTokenHash string `name:"ws_token_sha256" default:"" unit:"text" help:"Or its SHA-256, in hexadecimal."`
	// WebsocketSecret is the file of what their tokens are signed with.
	WebsocketSecret string `name:"ws_shared_secret_file" default:"" unit:"path" help:"The secret that tokens of signed-bearer-token are signed with, by HS256. Nobody but the server's user may be able to read it. Read again when it changes."`
	// WebsocketIssuer is whose tokens are good.
	WebsocketIssuer string `name:"ws_issuer" default:"" unit:"text" help:"What iss of signed tokens has to be. Empty takes any."`
	// WebsocketAudience is for whom they have to be.
	WebsocketAudience string `name:"ws_audience" default:"" unit:"text" help:"What aud of signed tokens has to contain. Empty takes any."`
	// WebsocketClockSkew is for exp and nbf.
	WebsocketClockSkew Duration `name:"ws_max_clock_skew" default:"30s" unit:"duration" min:"0s" max:"1h" help:"By how much the clock of whoever signs tokens may differ."`

	// KeepaliveInterval is how often a silent connection is asked.
	KeepaliveInterval Duration `name:"keepalive_interval" default:"30s" unit:"duration" min:"1s" max:"1h" help:"How long a connection may be silent before the server asks whether the peer is there."`
	// KeepaliveTimeout is how long the answer may take.
	KeepaliveTimeout Duration `name:"keepalive_timeout" default:"10s" unit:"duration" min:"1s" max:"10m" help:"How long the answer to that may take before the connection counts as lost."`
}

// Bytes is a size. It is written as a number of bytes, or with a unit KiB, MiB
// or GiB.
type Bytes int64

// Count is a number of things.
type Count int64

// Duration is a time span in Go's notation, e.g. "30s" or "1h30m".
type Duration time.Duration

// Default returns the configuration of a daemon that was told nothing.
func Default() Config {
	var cfg Config
	for _, s := range settings(&cfg) {
		if err := s.set(s.Default); err != nil {
			panic("config: default of " + s.Name + ": " + err.Error())
		}
	}
	return cfg
}

// Validate reports the first setting that is out of its range or contradicts
// another, as an [*Error] that names it.
func (c *Config) Validate() error {
	for _, s := range settings(c) {
		if err := s.check(); err != nil {
			return err
		}
	}
	if c.MaxGrace < c.DefaultGrace {
		return &Error{Setting: "max_grace", Problem: "is below default_grace", Fix: "raise it to at least " + time.Duration(c.DefaultGrace).String()}
	}
	if c.RetainedTotal != 0 && c.RetainedTotal < c.RetainedOutput {
		return &Error{Setting: "retained_output_bytes_total", Problem: "is below retained_output_bytes_per_process",
			Fix: "raise it to at least " + c.RetainedOutput.String() + ", or write 0"}
	}
	if c.StdinQueue < c.StdinWrite {
		return &Error{Setting: "stdin_queue_bytes", Problem: "is below stdin_write_bytes", Fix: "raise it to at least " + c.StdinWrite.String()}
	}
	if c.IncomingTotal < 2*c.Request {
		return &Error{Setting: "incoming_bytes_total", Problem: "is below twice request_bytes", Fix: "raise it to at least " + (2 * c.Request).String()}
	}
	if err := c.validateWebsocketAuth(); err != nil {
		return err
	}
	if err := c.validateSandbox(); err != nil {
		return err
	}
	if err := c.validateRemote(); err != nil {
		return err
	}
	return c.validateChoices()
}

// validateChoices checks the settings that are one of a few words.
func (c *Config) validateChoices() error {
	for _, s := range []struct{ name, value string }{
		{"guardian", c.Guardian}, {"allow_direct_exec", c.DirectExec}, {"allow_prepared_exec", c.PreparedExec},
		{"sandbox_network", c.SandboxNetwork}, {"agent_identity", c.AgentIdentity},
	} {
		if s.value != switchedOn && s.value != switchedOff {
			return &Error{Setting: s.name, Problem: fmt.Sprintf("cannot be %q", s.value), Fix: "write on or off"}
		}
	}
	if c.Cgroup != "auto" && c.Cgroup != "off" && !filepath.IsAbs(c.Cgroup) {
		return &Error{Setting: "cgroup", Problem: fmt.Sprintf("cannot be %q", c.Cgroup), Fix: "write auto, off or an absolute path"}
	}
	for _, name := range c.Disable {
		if !slices.Contains(disableable, name) {
			return &Error{Setting: "disable", Problem: fmt.Sprintf("cannot be %q", name), Fix: "what can be switched off is " + strings.Join(disableable, ", ")}
		}
	}
	return nil
}

// The words of settings that are on or off.
const (
	switchedOn  = "on"
	switchedOff = "off"
)

// HasDirectExec reports whether direct commands are started.
func (c *Config) HasDirectExec() bool { return c.DirectExec == switchedOn }

// HasPreparedExec reports whether prepared commands are started.
func (c *Config) HasPreparedExec() bool { return c.PreparedExec == switchedOn }

// disableable is what can be switched off.
var disableable = []string{DisableHTTP}

// DisableHTTP is the name in Config.Disable of requests over HTTP.
const DisableHTTP = "http"

// HasHTTP reports whether requests over HTTP are made for clients.
func (c *Config) HasHTTP() bool { return !slices.Contains(c.Disable, DisableHTTP) }
