package config

import (
	"net/netip"
	"net/url"
	"regexp"
)

// Hub is a complete configuration of a hub of the relay. The zero value is not
// usable: begin with [DefaultHub]. A field's tags are its documentation;
// docs/hub.md is made from them. The struct is plain data and safe to copy.
type Hub struct {
	// Listen are the listeners for executors and harnesses.
	Listen []string `name:"listen" reload:"no" default:"http://127.0.0.1:7430" unit:"URLs" help:"Addresses to listen on for executors and harnesses: https://HOST:PORT with TLS, or http://HOST:PORT on loopback. HOST is an address of this machine."`
	// PublicURL is the URL of the hub for its clients.
	PublicURL string `name:"public_url" reload:"no" default:"" unit:"text" help:"The URL of the hub for other hosts, as https://HOST, to which executors and harnesses are sent. Empty: the address at which each of them connected, which is wrong behind a proxy that ends TLS."`
	// AllowHTTP allows http:// beyond loopback.
	AllowHTTP string `name:"allow_http" reload:"no" default:"off" unit:"choice" choices:"on,off" help:"Whether to allow http:// listeners beyond loopback, where tokens and all other data travel in plain text: on or off. For trusted networks, and for proxies that end TLS."`

	// TLSCertificate is the hub's certificate chain.
	TLSCertificate string `name:"tls_cert" reload:"yes" default:"" unit:"path" help:"The certificate chain of https:// listeners, as PEM. Read again when it changes."`
	// TLSKey is the private key of TLSCertificate.
	TLSKey string `name:"tls_key" reload:"yes" default:"" unit:"path" help:"Its private key, as PEM. Only the hub's user may be able to read it. Read again when it changes."`
	// TLSClientCA has the authorities of client certificates.
	TLSClientCA string `name:"tls_ca" reload:"yes" default:"" unit:"path" help:"The authorities whose client certificates are accepted, as PEM. Empty accepts none. Read again when it changes."`
	// Principals is the table of principals and their executors.
	Principals string `name:"principals_file" reload:"no" default:"" unit:"path" help:"The table of principals, their credentials, and the executors that each may act as (act_as_executors) and connect to (connect_to_executors); see docs/security.md. Empty: users in loopback_users may do everything on loopback. Read again when it changes."`
	// LoopbackUsers are accepted on loopback without a credential.
	LoopbackUsers []string `name:"loopback_users" reload:"no" default:"same" unit:"names" help:"Users, by name or number, whose processes are accepted on loopback without a token or certificate, beside the hub's user and root. same: no others. any: all users, who may then act as and connect to every executor if there is no table of principals."`
	// FailedAttempts limits failed authentication per address.
	FailedAttempts Count `name:"failed_attempts" reload:"yes" default:"10" unit:"attempts" min:"1" max:"10000" help:"Failed attempts to authenticate that one address may make before further ones are refused."`
	// FailedAttemptInterval is how fast failed attempts expire.
	FailedAttemptInterval Duration `name:"failed_attempt_interval" reload:"yes" default:"2s" unit:"duration" min:"10ms" max:"1h" help:"The time after which one failed attempt of an address is forgiven."`
	// Origins are the accepted values of the Origin header.
	Origins []string `name:"allowed_origins" reload:"no" default:"" unit:"origins" help:"Accepted values of the Origin header, for example https://app.example.org. Requests with others are refused, so that web pages cannot connect."`
	// Hosts are names of the hub in the Host header of requests.
	Hosts []string `name:"allowed_hosts" reload:"yes" default:"" unit:"names" help:"Names of this hub in the Host header of requests, without a port, beside the host of public_url, IP addresses, localhost and the names of its certificate. Requests with others are refused with status 421, so that a web page cannot reach the hub by a name of its own (DNS rebinding)."`

	// AuditFile is the audit log.
	AuditFile string `name:"audit_file" reload:"no" default:"" unit:"path" choices:"/" help:"The audit log, to which who connected to which executor, and what was denied, is appended as JSON; see docs/audit.md. It is created with mode 0600; a file that others can write is refused. Empty: none."`
	// AuditFileBytes is the size at which the audit log is rotated.
	AuditFileBytes Bytes `name:"audit_file_bytes" reload:"no" default:"64MiB" unit:"bytes" min:"0" max:"1024GiB" help:"The size at which the audit log is renamed to audit_file with .1 and begun again. 0: never, for another program that rotates it."`
	// AuditFiles is how many rotated audit logs are kept.
	AuditFiles Count `name:"audit_files" reload:"no" default:"10" unit:"files" min:"1" max:"10000" help:"How many rotated audit logs are kept: .1 is the newest."`
	// AuditSync is when the audit log is written to the disk.
	AuditSync string `name:"audit_fsync" reload:"no" default:"interval" unit:"choice" choices:"off,each,interval" help:"When the audit log is synchronized with the disk: off, by the system; each, each record, before the action that it is about; interval, every second."`
	// AuditFailure is what happens if the audit log cannot be written.
	AuditFailure string `name:"audit_failure" reload:"no" default:"refuse" unit:"choice" choices:"refuse,drop" help:"What happens to an action whose record cannot be written, for example because the disk is full: refuse it, or do it, drop the record and count it."`

	// PreviewDomain is the domain of previews.
	PreviewDomain string `name:"preview_domain" reload:"no" default:"" unit:"text" help:"The domain of previews, for example preview.example.org: a request for PORT--EXECUTOR.DOMAIN is passed to that port of the executor. DNS and the certificate need *.DOMAIN. Use a domain that serves nothing else, and another one for each node of a cluster. Empty: no previews."`
	// PreviewLinkLifetime limits the lifetime of links to previews.
	PreviewLinkLifetime Duration `name:"preview_link_lifetime" reload:"no" default:"24h" unit:"duration" min:"1s" max:"8760h" help:"The longest lifetime of a link to a preview. Links end with the hub, too."`
	// PreviewLinks limits the links of a principal.
	PreviewLinks Count `name:"preview_links_per_principal" reload:"no" default:"256" unit:"links" min:"1" max:"100000" help:"Links to previews of one principal that are valid at a time. Further ones are refused until one expires or is revoked."`
	// PreviewPortConnections limits the requests to one port.
	PreviewPortConnections Count `name:"preview_connections_per_port" reload:"no" default:"256" unit:"connections" min:"1" max:"1000000" help:"Concurrent requests and websockets of the preview of one port. Further ones are refused."`
	// PreviewExecutorConnections limits those to one executor.
	PreviewExecutorConnections Count `name:"preview_connections_per_executor" reload:"no" default:"1024" unit:"connections" min:"1" max:"1000000" help:"Concurrent requests and websockets of all previews of one executor. Further ones are refused."`

	// Console is whether the hub serves the console.
	Console string `name:"console" reload:"no" default:"off" unit:"choice" choices:"on,off" help:"Whether the hub serves the console at /console/, a page for its executors and their processes: on or off. See docs/console.md."`
	// ConsoleSession is how long a browser stays signed in.
	ConsoleSession Duration `name:"console_session_lifetime" reload:"no" default:"12h" unit:"duration" min:"1s" max:"8760h" help:"How long a browser stays signed in at the console. Sessions end with the hub, too."`
	// ConsoleSessions limits the sessions of a principal.
	ConsoleSessions Count `name:"console_sessions_per_principal" reload:"no" default:"32" unit:"sessions" min:"1" max:"10000" help:"Browsers of one principal that are signed in at the console at a time. A further one ends the oldest session."`
	// ConsoleOIDCIssuer is the OpenID provider of the console.
	ConsoleOIDCIssuer string `name:"console_oidc_issuer" reload:"no" default:"" unit:"text" help:"The issuer of an OpenID provider at which people sign in to the console, as https://HOST, or http:// on loopback; see docs/console.md. They need oidc_identities in the table of principals. Empty: tokens and client certificates only."`
	// ConsoleOIDCClient is the console's client id there.
	ConsoleOIDCClient string `name:"console_oidc_client_id" reload:"no" default:"" unit:"text" help:"The client id with which the console is registered there."`
	// ConsoleOIDCSecret has the secret of that client.
	ConsoleOIDCSecret string `name:"console_oidc_client_secret_file" reload:"no" default:"" unit:"path" choices:"/" help:"The secret of that client. Only the hub's user may be able to read it. Read at each sign-in. Empty: a public client."`

	// Node is the name of the hub in a cluster.
	Node string `name:"node" reload:"no" default:"" unit:"text" help:"The name of this hub among the nodes of its cluster. Empty: the host name."`
	// Presence is where the executors are stored.
	Presence string `name:"presence" reload:"no" default:"memory" unit:"choice" choices:"memory,nats" help:"Where the presence of executors is stored: memory, or nats, an embedded NATS server with JetStream."`
	// PresenceDirectory is the directory of NATS.
	PresenceDirectory string `name:"presence_directory" reload:"no" default:"" unit:"path" choices:"/" help:"The directory for the files of nats, so that executors are known after a restart. Empty: memory. No other program may use it."`
	// ClusterListen is the listener for the NATS servers of other nodes.
	ClusterListen string `name:"cluster_listen" reload:"no" default:"" unit:"text" help:"HOST:PORT where the nats of other nodes connect to this one. Empty: a hub of one node. A peer that can connect to it is a node of the hub, so use a private network."`
	// ClusterRoutes are the other nodes.
	ClusterRoutes []string `name:"cluster_routes" reload:"no" default:"" unit:"names" help:"The cluster_listen of the other nodes, as HOST:PORT. Records are stored on three nodes, or on one if there are fewer."`
	// URLKey signs URLs.
	URLKey string `name:"url_key_file" reload:"no" default:"" unit:"path" help:"The secret with which URLs are signed, of 32 bytes or more, the same on all nodes. Only the hub's user may be able to read it. Empty: a random one; URLs then end with the hub."`

	// Frame limits one frame.
	Frame Bytes `name:"frame_bytes" reload:"no" default:"16MiB" unit:"bytes" min:"64KiB" max:"64MiB" help:"The largest frame that is routed. A websocket that sends a larger one is closed with code 1009. Peers that do not segment send a whole message in one frame."`
	// Queue limits one direction of a stream with retransmission.
	Queue Bytes `name:"stream_queue_bytes" reload:"no" default:"2112KiB" unit:"bytes" min:"128KiB" max:"1GiB" help:"Queued bytes for one end of a stream whose ends retransmit: one window. More is dropped and retransmitted, and the stream is reset once nothing has left for stream_grace."`
	// PlainQueue limits one of another stream.
	PlainQueue Bytes `name:"plain_stream_queue_bytes" reload:"no" default:"16MiB" unit:"bytes" min:"128KiB" max:"1GiB" help:"Queued bytes for one end of a stream with an end that does not retransmit and has no window. The stream is reset if there are more."`
	// ConnectionQueue limits all queues of one websocket.
	ConnectionQueue Bytes `name:"connection_queue_bytes" reload:"no" default:"64MiB" unit:"bytes" min:"1MiB" max:"16GiB" help:"Queued bytes for one websocket, over all its streams."`
	// TotalQueue limits all queues.
	TotalQueue Bytes `name:"queue_bytes_total" reload:"no" default:"1GiB" unit:"bytes" min:"1MiB" max:"1024GiB" help:"Queued bytes for all websockets together, and as much again for large frames that are being received, for which the slowest connection of the principal that uses most is closed (code 1013)."`
	// IncomingRate is the rate below which a frame counts as stalled.
	IncomingRate Bytes `name:"min_incoming_bytes_per_second" reload:"no" default:"16KiB" unit:"bytes" min:"1" max:"1GiB" help:"Once large frames that are being received use queue_bytes_total, one that is received more slowly than this may be ended for others. Frames of a principal or connection within its equal share are always accepted."`
	// Connections limits the connections of one listener.
	Connections Count `name:"connections_per_listener" reload:"yes" default:"10000" unit:"connections" min:"1" max:"1000000" help:"Connections with a principal of one listener. At the limit, the principal with the most loses one to a principal with fewer: the one that has been idle longest or, if all are in use, the least recently used. A further connection of the same principal replaces an idle one, or is refused. There may be an eighth more connections without a principal; the oldest is closed for a new one."`
	// PrincipalConnections limits the websockets of one principal.
	PrincipalConnections Count `name:"connections_per_principal" reload:"no" default:"1024" unit:"connections" min:"1" max:"1000000" help:"Concurrent websockets of one principal, of executors and harnesses together. Further ones are refused."`
	// ConnectionStreams limits the streams of one websocket.
	ConnectionStreams Count `name:"streams_per_connection" reload:"no" default:"1024" unit:"streams" min:"1" max:"1000000" help:"Concurrent streams of one websocket of a harness. Further ones are reset."`
	// PrincipalStreams limits those of one principal.
	PrincipalStreams Count `name:"streams_per_principal" reload:"no" default:"4096" unit:"streams" min:"1" max:"1000000" help:"Concurrent streams of all websockets of one principal. Further ones are reset."`
	// ExecutorStreams limits those of one executor.
	ExecutorStreams Count `name:"streams_per_executor" reload:"no" default:"4096" unit:"streams" min:"1" max:"1000000" help:"Concurrent streams of one executor. Further ones are reset."`
	// Executors limits the known executors.
	Executors Count `name:"executors" reload:"no" default:"10000" unit:"executors" min:"1" max:"1000000" help:"Known executors, connected or not. For a further one the hub forgets a disconnected one: of the principal with the most executors, the one that has been disconnected longest. If none has been disconnected for url_lifetime and four times presence_interval, the registration is refused."`
	// PrincipalExecutors limits those of one principal.
	PrincipalExecutors Count `name:"executors_per_principal" reload:"no" default:"2048" unit:"executors" min:"1" max:"1000000" help:"Of these, executors that one principal has registered. For a further one the hub forgets the principal's executor that has been disconnected longest, or refuses the registration in the same way."`

	// StreamGrace is how long a stream waits for a lost peer.
	StreamGrace Duration `name:"stream_grace" reload:"no" default:"30s" unit:"duration" min:"1s" max:"1h" help:"How long an end that retransmits may be disconnected before its streams are reset."`
	// StreamIdle is when an idle stream is removed.
	StreamIdle Duration `name:"stream_idle" reload:"no" default:"2m" unit:"duration" min:"30s" max:"24h" help:"After how long without a frame a stream whose ends retransmit is forgotten; they send a frame every few seconds."`
	// URLLifetime is how long URLs are valid.
	URLLifetime Duration `name:"url_lifetime" reload:"no" default:"5m" unit:"duration" min:"1s" max:"24h" help:"How long an executor or harness can connect with the URL it got."`
	// ExecutorRetention is how long disconnected executors are known.
	ExecutorRetention Duration `name:"executor_retention" reload:"no" default:"168h" unit:"duration" min:"1m" max:"8760h" help:"How long a disconnected executor is known at least once the limit executors is reached, if its principal has no more executors than the one that needs the slot. One that never connected is forgotten sooner."`
	// PresenceInterval is how often the presence of executors is renewed.
	PresenceInterval Duration `name:"presence_interval" reload:"no" default:"15s" unit:"duration" min:"1s" max:"10m" help:"How often the presence of a connected executor is stored. An executor counts as disconnected if its node has not stored it for four times as long."`

	// PingInterval is how often websockets are pinged.
	PingInterval Duration `name:"websocket_ping_interval" reload:"no" default:"30s" unit:"duration" min:"0s" max:"1h" help:"Time between pings to websockets. 0s: no pings."`
	// KeepaliveInterval is how long a connection may be idle before a probe.
	KeepaliveInterval Duration `name:"keepalive_interval" reload:"no" default:"30s" unit:"duration" min:"1s" max:"1h" help:"How long a connection may be idle before the kernel sends a keepalive probe."`
	// KeepaliveTimeout is how long the answer to a probe may take.
	KeepaliveTimeout Duration `name:"keepalive_timeout" reload:"no" default:"10s" unit:"duration" min:"1s" max:"10m" help:"How long the answer to a keepalive probe may take before the connection counts as lost."`

	// OTLPEndpoint is the collector of traces.
	OTLPEndpoint string `name:"otlp_endpoint" reload:"no" default:"" unit:"text" help:"The collector of traces (OpenTelemetry, OTLP over gRPC): http://HOST:PORT, or https://HOST:PORT with TLS. Without a port it is 4317. Empty: that of the standard variables OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_EXPORTER_OTLP_TRACES_ENDPOINT if OTEL_EXPORTER_OTLP_PROTOCOL is grpc, otherwise no traces. A hub records the requests of callers that record a trace; see docs/traces.md."`
	// OTLPCA has the certificate authorities of the collector.
	OTLPCA string `name:"otlp_tls_ca" reload:"no" default:"" unit:"path" choices:"/" help:"Certificate authorities of the collector, as PEM. Empty: those of the system."`
	// OTLPHeaders has headers for the collector.
	OTLPHeaders string `name:"otlp_headers_file" reload:"no" default:"" unit:"path" choices:"/" help:"Headers of the calls of the collector, as its credentials, one NAME: VALUE in each line. Only the hub's user may be able to read it."`
}

// DefaultHub returns the default configuration of a hub.
func DefaultHub() Hub {
	var cfg Hub
	setDefaults(Values(&cfg))
	return cfg
}

// The values of Hub.Presence.
const (
	PresenceMemory = "memory"
	PresenceNATS   = "nats"
)

// Validate reports the first setting that is out of its range or contradicts
// another, as an [*Error] that names it.
func (h *Hub) Validate() error {
	return firstError(append(checkSettings(Values(h)), h.contradictions()...))
}

// contradictions returns an error for each setting that contradicts another, or has a
// value that depends on more than its type.
func (h *Hub) contradictions() (problems []error) {
	public, err := url.Parse(h.PublicURL)
	issuer, issuerErr := url.Parse(h.ConsoleOIDCIssuer)
	for _, problem := range []struct {
		is  bool
		err *Error
	}{
		{len(h.Listen) == 0,
			&Error{Setting: "listen", Problem: "is empty", Fix: "write for example http://127.0.0.1:7430"}},
		{h.Presence != PresenceNATS && (h.PresenceDirectory != "" || h.ClusterListen != "" || len(h.ClusterRoutes) > 0),
			&Error{Setting: "presence", Problem: "is memory, which has neither presence_directory nor a cluster", Fix: "write presence = \"nats\", or leave them out"}},
		{len(h.ClusterRoutes) > 0 && h.ClusterListen == "",
			&Error{Setting: "cluster_routes", Problem: "has nodes that could not reach this one", Fix: "set cluster_listen"}},
		{h.ClusterListen != "" && (h.URLKey == "" || h.PublicURL == ""),
			&Error{Setting: "cluster_listen", Problem: "needs url_key_file and public_url", Fix: "set them: one node hands out the URLs of another"}},
		{h.PublicURL != "" && (err != nil || !isHTTP(public)),
			invalid("public_url", h.PublicURL, "write for example https://hub.example.org")},
		{h.PreviewDomain != "" && !isDomain(h.PreviewDomain),
			invalid("preview_domain", h.PreviewDomain, "write a domain in lower case, without * and port, for example preview.example.org")},
		{h.ConsoleOIDCIssuer != "" && (issuerErr != nil || !isHTTP(issuer) || !IsConfidential(issuer)),
			invalid("console_oidc_issuer", h.ConsoleOIDCIssuer, "write for example https://accounts.example.org, or http:// on loopback")},
		{(h.ConsoleOIDCIssuer == "") != (h.ConsoleOIDCClient == "") || h.ConsoleOIDCSecret != "" && h.ConsoleOIDCIssuer == "",
			&Error{Setting: "console_oidc_issuer", Problem: "needs console_oidc_client_id, and that and console_oidc_client_secret_file need an issuer", Fix: "set both, or neither"}},
		{h.ConsoleOIDCIssuer != "" && h.Principals == "",
			&Error{Setting: "console_oidc_issuer", Problem: "needs principals_file", Fix: "write a table with oidc_identities"}},
		{h.TotalQueue < h.Frame,
			&Error{Setting: "queue_bytes_total", Problem: "is below frame_bytes", Fix: "raise it to at least " + h.Frame.String()}},
		{h.StreamIdle < h.StreamGrace,
			&Error{Setting: "stream_idle", Problem: "is below stream_grace", Fix: "raise it to at least " + h.StreamGrace.String()}},
	} {
		if problem.is {
			problems = append(problems, problem.err)
		}
	}
	return append(problems, tracesProblems(h.OTLPEndpoint, "1")...)
}

// isHTTP reports whether a URL is that of an HTTP server, without credentials and query.
func isHTTP(u *url.URL) bool {
	return (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && u.User == nil && u.RawQuery == "" && u.Fragment == ""
}

// IsConfidential reports whether what is sent to a URL can be read by nobody else: by TLS, or
// because it stays on this host.
func IsConfidential(u *url.URL) bool {
	address, err := netip.ParseAddr(u.Hostname())
	return u.Scheme == "https" || u.Scheme == "http" && (u.Hostname() == "localhost" || err == nil && address.IsLoopback())
}

var domain = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)

// maxDomain leaves space for a label and its dot in a name of DNS.
const maxDomain = 253 - 64

// isDomain reports whether text is a domain in lower case, not an IP address.
func isDomain(text string) bool {
	_, err := netip.ParseAddr(text)
	return err != nil && len(text) <= maxDomain && domain.MatchString(text)
}

// HasPlainHTTP reports whether http:// is allowed beyond loopback.
func (h *Hub) HasPlainHTTP() bool { return h.AllowHTTP == switchedOn }

// HasConsole reports whether the hub serves the console.
func (h *Hub) HasConsole() bool { return h.Console == switchedOn }
