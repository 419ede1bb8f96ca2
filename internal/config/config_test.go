package config

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestDefault_IsValid(t *testing.T) {
	cfg := Default()
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	if cfg.RetainedOutput != 1<<20 || time.Duration(cfg.DefaultGrace) != 30*time.Second || len(cfg.Listen) != 1 {
		t.Errorf("defaults are %+v", cfg)
	}
}

func TestSettings_HaveDescriptions(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range Settings() {
		mayBeEmpty := slices.Contains([]string{"path", "paths", "text", "origins", "names"}, s.Unit)
		if s.Name == "" || s.Unit == "" || s.Help == "" || s.Default == "" && !mayBeEmpty || seen[s.Name] {
			t.Errorf("setting %+v lacks a description or repeats a name", s)
		}
		seen[s.Name] = true
	}
}

func TestLoad_FileAndEnvironment_OverrideDefaults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "execwire.toml")
	text := "listen = [\"unix:///run/execwire.sock\"]\nretained_output_bytes_per_process = \"2MiB\"\nmax_wait = \"1m\"\nretained_events = 200\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := Load(path, []string{"EXECWIRE_MAX_WAIT=2m", "EXECWIRE_SERVER=ignored", "PATH=/bin"})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Listen[0] != "unix:///run/execwire.sock" || cfg.RetainedOutput != 2<<20 || cfg.RetainedEvents != 200 {
		t.Errorf("the file was not applied: %+v", cfg)
	}
	if len(cfg.Origins) != 0 || cfg.WebsocketClockSkew != defaultClockSkew {
		t.Errorf("the defaults were not applied: %+v", cfg)
	}
	if time.Duration(cfg.MaxWait) != 2*time.Minute {
		t.Errorf("max_wait = %v, want the environment's 2m", time.Duration(cfg.MaxWait))
	}
}

// Flags are applied after the environment and before the validation.
func TestLoad_Flags_OverrideAll(t *testing.T) {
	environ := []string{"EXECWIRE_WS_AUTH=capability-token", "EXECWIRE_MAX_WAIT=2m"}
	cfg, err := Load("", environ, func(c *Config) { c.WebsocketToken, c.MaxWait = "/token", Duration(time.Minute) })
	if err != nil || cfg.WebsocketToken != "/token" || time.Duration(cfg.MaxWait) != time.Minute {
		t.Errorf("Load = %+v, %v", cfg, err)
	}
	if _, err := Load("", nil, func(c *Config) { c.MaxWait = 0 }); err == nil {
		t.Error("a flag out of range is accepted")
	}
}

func TestLoad_InvalidSettings_Fail(t *testing.T) {
	tests := []struct {
		name, file, env, want string
	}{
		{"unknown setting", "no_such = 1", "", "no_such is not a setting"},
		{"setting in capitals", "Require_Sandbox = \"off\"", "", "Require_Sandbox is not a setting: write require_sandbox"},
		{"setting twice", "require_sandbox = \"read-only\"\nREQUIRE_SANDBOX = \"off\"", "", "REQUIRE_SANDBOX is not a setting: write require_sandbox"},
		{"not TOML", "= 1", "", "is not TOML"},
		{"bad size", `window_bytes = "many"`, "", "is not a size"},
		{"negative size", "window_bytes = -1", "", "is not a size"},
		{"duration in words", `max_wait = "soon"`, "", "max_wait \"soon\" is not a duration"},
		{"duration as a list", "max_wait = [5]", "", "max_wait cannot be"},
		{"below the range", `retained_output_bytes_per_process = "1KiB"`, "", "below 64KiB"},
		{"above the range", "", "EXECWIRE_RETAINED_OUTPUT_BYTES_PER_PROCESS=2GiB", "above 1GiB"},
		{"no connections", "connections_per_listener = 0", "", "connections_per_listener is below 1"},
		{"too many connections", "connections_per_listener = 1000001", "", "connections_per_listener is above 1000000"},
		{"too few streams", "streams_per_connection = 9", "", "streams_per_connection is below 10"},
		{"too many streams", "streams_per_connection = 100001", "", "streams_per_connection is above 100000"},
		{"too little metadata", "header_list_bytes = 8191", "", "header_list_bytes is below 8KiB"},
		{"too much metadata", `header_list_bytes = "2MiB"`, "", "header_list_bytes is above 1MiB"},
		{"bad environment", "", "EXECWIRE_READERS_PER_PROCESS=x", "EXECWIRE_READERS_PER_PROCESS"},
		{"list of numbers", "listen = [1]", "", "not text"},
		{"table for a number", "[max_wait]\na = 1", "", "measured in"},
		{"contradiction of graces", `max_grace = "1s"`, "", "below default_grace"},
		{"too small frames", "frame_bytes = 1", "", "frame_bytes is below 64KiB"},
		{"too large requests", `request_bytes = "2GiB"`, "", "request_bytes is above 1GiB"},
		{"no requests", "requests_per_connection = 0", "", "requests_per_connection is below 1"},
		{"too many requests", "requests_per_connection = 100001", "", "requests_per_connection is above 100000"},
		{"too many processes", "max_processes_per_connection = 1000001", "", "max_processes_per_connection is above 1000000"},
		{"too much to reserve", "reserved_processes = 100001", "", "reserved_processes is above 100000"},
		{"too high a score", "oom_score_adjust = 1001", "", "oom_score_adjust is above 1000"},
		{"less in all than of one", `retained_output_bytes_total = "1023KiB"`, "", "retained_output_bytes_total is below retained_output_bytes_per_process"},
		{"less than no processes", "max_processes_per_connection = -1", "", "max_processes_per_connection is below 0"},
		{"no control", "control_requests_per_connection = 0", "", "control_requests_per_connection is below 1"},
		{"too little incoming", "incoming_bytes_per_connection = 1", "", "incoming_bytes_per_connection is below 64KiB"},
		{"too much outgoing", `outgoing_bytes_per_connection = "2GiB"`, "", "outgoing_bytes_per_connection is above 1GiB"},
		{"too rare pings", `websocket_ping_interval = "2h"`, "", "websocket_ping_interval is above 1h"},
		{"no such authentication", "", "EXECWIRE_WS_AUTH=basic", `ws_auth cannot be "basic": write capability-token`},
		{"token without authentication", "", "EXECWIRE_WS_TOKEN_FILE=/t", "ws_auth has to be capability-token or signed-bearer-token"},
		{"skew without authentication", "", "EXECWIRE_WS_MAX_CLOCK_SKEW=0s", "ws_auth has to be"},
		{"no token", `ws_auth = "capability-token"`, "", "ws_token_file or ws_token_sha256 is needed when ws_auth is capability-token"},
		{"two tokens", "ws_auth = \"capability-token\"\nws_token_sha256 = \"aa\"", "EXECWIRE_WS_TOKEN_FILE=/t", "ws_token_file and ws_token_sha256 exclude each other"},
		{"no hash", "ws_auth = \"capability-token\"\nws_token_sha256 = \"zz\"", "", "ws_token_sha256 is not a SHA-256"},
		{"secret of a token", "ws_auth = \"capability-token\"\nws_token_file = \"/t\"", "EXECWIRE_WS_SHARED_SECRET_FILE=/s", "need ws_auth to be signed-bearer-token"},
		{"no secret", `ws_auth = "signed-bearer-token"`, "", "ws_shared_secret_file is needed when ws_auth is signed-bearer-token"},
		{"token for signed ones", "ws_auth = \"signed-bearer-token\"\nws_shared_secret_file = \"/s\"", "EXECWIRE_WS_TOKEN_FILE=/t", "need ws_auth to be capability-token"},
		{"too little for all", "incoming_bytes_total = 1", "", "incoming_bytes_total is below 128KiB"},
		{"contradiction of requests", `request_bytes = "513MiB"`, "", "incoming_bytes_total is below twice request_bytes"},
		{"neither on nor off", `allow_direct_exec = "yes"`, "", `allow_direct_exec cannot be "yes": write on or off`},
		{"neither off nor on", "", "EXECWIRE_ALLOW_PREPARED_EXEC=false", `allow_prepared_exec cannot be "false": write on or off`},
		{"nothing to switch off", `disable = ["http", "files"]`, "", `disable cannot be "files": what can be switched off is http`},
		{"no requests over HTTP", "http_requests_per_principal = 0", "", "http_requests_per_principal is below 1"},
		{"no connections to ports", "port_connections_per_principal = 0", "", "port_connections_per_principal is below 1"},
		{"no time to connect to ports", "port_connect_timeout = \"1ms\"", "", "port_connect_timeout is below 10ms"},
		{"no such place to listen", `ports_listen = "0.0.0.0"`, "", `ports_listen cannot be "0.0.0.0": write off, loopback or any`},
		{"no listeners", "port_listeners_per_principal = 0", "", "port_listeners_per_principal is below 1"},
		{"no backlog", "port_backlog = 0", "", "port_backlog is below 1"},
		{"no time to accept", "port_accept_timeout = \"1ms\"", "", "port_accept_timeout is below 10ms"},
		{"no requests over HTTP of a connection", "http_requests_per_connection = 0", "", "http_requests_per_connection is below 1"},
		{"too small heads", "http_head_bytes = 1", "", "http_head_bytes is below 4KiB"},
		{"too large responses", `http_buffered_bytes_per_connection = "2GiB"`, "", "http_buffered_bytes_per_connection is above 1GiB"},
		{"no backend", `sandbox_backends = []`, "", "sandbox_backends is empty: write auto, off"},
		{"no such backend", `sandbox_backends = ["bubblewrap", "seatbelt"]`, "", `sandbox_backends cannot be "bubblewrap, seatbelt"`},
		{"some backends and all", "", "EXECWIRE_SANDBOX_BACKENDS=auto,landlock", `sandbox_backends cannot be "auto, landlock"`},
		{"a bwrap somewhere", `bubblewrap = "bwrap"`, "", `bubblewrap cannot be "bwrap": write an absolute path`},
		{"no such sandbox", `require_sandbox = "readonly"`, "", `require_sandbox cannot be "readonly": write off, read-only, workspace-write or the absolute path`},
		{"an empty sandbox", "", "EXECWIRE_REQUIRE_SANDBOX=", `require_sandbox cannot be ""`},
		{"a workspace nowhere", `require_sandbox = "workspace-write"`, "", "sandbox_writable_roots is needed"},
		{"a relative workspace", `require_sandbox = "workspace-write"`, "EXECWIRE_SANDBOX_WRITABLE_ROOTS=/a,b", `sandbox_writable_roots cannot be "b"`},
		{"roots of nothing", `sandbox_writable_roots = ["/a"]`, "", "sandbox_writable_roots needs require_sandbox to be workspace-write"},
		{"a network of nothing", `sandbox_network = "on"`, "", "sandbox_network needs require_sandbox"},
		{"a network beside a policy", `require_sandbox = "/etc/policy.json"`, "EXECWIRE_SANDBOX_NETWORK=on", "a policy in a file says itself"},
		{"half a network", `sandbox_network = "some"`, "", `sandbox_network cannot be "some": write on or off`},
		{"a registry that is none", `remote = "ws://a"`, "EXECWIRE_EXECUTOR_ID=a", "remote is no address of a registry: write https://HOST"},
		{"a registry with a secret", `remote = "https://a:b@c"`, "EXECWIRE_EXECUTOR_ID=a", "remote is no address of a registry"},
		{"an executor without id", `remote = "https://a"`, "", "executor_id is needed when remote is set: choose"},
		{"a name without a relay", `executor_name = "a"`, "", "executor_name needs remote"},
		{"labels without a relay", `executor_labels = ["a=b"]`, "", "executor_labels needs remote"},
		{"a token without a relay", `remote_token_file = "/t"`, "", "remote_token_file needs remote"},
		{"an identity without a relay", `agent_identity = "on"`, "", "agent_identity needs remote"},
		{"half an identity", `agent_identity = "yes"`, "", `agent_identity cannot be "yes": write on or off`},
		{"two credentials", "remote = \"https://a\"\nexecutor_id = \"a\"\nagent_identity = \"on\"", "EXECWIRE_REMOTE_TOKEN_FILE=/t", "remote_token_file and agent_identity exclude each other"},
		{"a relative token", "remote = \"https://a\"\nexecutor_id = \"a\"", "EXECWIRE_REMOTE_TOKEN_FILE=t", `remote_token_file cannot be "t": write an absolute path`},
		{"a label without value", "remote = \"https://a\"\nexecutor_id = \"a\"", "EXECWIRE_EXECUTOR_LABELS=a=b,c", `executor_labels cannot have "c": write KEY=VALUE`},
		{"relative authorities", "remote = \"https://a\"\nexecutor_id = \"a\"", "EXECWIRE_REMOTE_TLS_CA=t", `remote_tls_ca cannot be "t": write an absolute path`},
		{"authorities without a relay", `remote_tls_ca = "/t"`, "", "remote_tls_ca needs remote"},
		{"a label twice", "remote = \"https://a\"\nexecutor_id = \"a\"", "EXECWIRE_EXECUTOR_LABELS=a=b,a=c", "executor_labels has a key twice"},
		{"no streams of a relay", "relay_streams = 0", "", "relay_streams is below 1"},
		{"too many streams of a relay", "relay_streams = 100001", "", "relay_streams is above 100000"},
		{"no silence of a relay", "relay_silence_timeout = '999ms'", "", "relay_silence_timeout is below 1s"},
		{"too long a silence of a relay", "relay_silence_timeout = '11m'", "", "relay_silence_timeout is above 10m"},
		{"contradiction of stdin", `stdin_queue_bytes = "4KiB"`, "", "below stdin_write_bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "execwire.toml")
			if err := os.WriteFile(path, []byte(tt.file), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Load(path, []string{tt.env})
			var configErr *Error
			if !errors.As(err, &configErr) || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("Load = %v, want an *Error that contains %q", err, tt.want)
			}
		})
	}
}

func TestUsesBackend(t *testing.T) {
	for _, tt := range []struct {
		names                []string
		bubblewrap, landlock bool
	}{
		{Default().SandboxBackends, true, true},
		{[]string{"auto"}, true, true},
		{[]string{"off"}, false, false},
		{[]string{"landlock"}, false, true},
		{[]string{"bubblewrap"}, true, false},
		{[]string{"landlock", "bubblewrap"}, true, true},
	} {
		cfg := Default()
		cfg.SandboxBackends = tt.names
		if err := cfg.Validate(); err != nil || cfg.UsesBackend(BackendBubblewrap) != tt.bubblewrap || cfg.UsesBackend(BackendLandlock) != tt.landlock {
			t.Errorf("%v: %v, %v, %v", tt.names, err, cfg.UsesBackend(BackendBubblewrap), cfg.UsesBackend(BackendLandlock))
		}
	}
}

func TestLoad_MissingFile_IsNamed(t *testing.T) {
	_, err := Load("/nonexistent/execwire.toml", nil)
	if err == nil || !strings.Contains(err.Error(), "/nonexistent/execwire.toml: does not exist") {
		t.Fatalf("Load = %v", err)
	}
}

func TestBytes_Notation(t *testing.T) {
	for text, want := range map[string]Bytes{"0": 0, "17": 17, "64KiB": 64 << 10, "3 MiB": 3 << 20, "1GiB": 1 << 30} {
		got, err := ParseBytes(text)
		if err != nil || got != want {
			t.Errorf("ParseBytes(%q) = %v, %v; want %d", text, got, err, want)
		}
	}
	for size, want := range map[Bytes]string{0: "0", 17: "17", 65536: "64KiB", 3 << 20: "3MiB"} {
		if got := size.String(); got != want {
			t.Errorf("%d is written %q, want %q", int64(size), got, want)
		}
	}
}

func TestLoad_Remote_HasNoListenersByDefault(t *testing.T) {
	remote := []string{"EXECWIRE_REMOTE=https://hub.example.org/base", "EXECWIRE_EXECUTOR_ID=a"}
	for _, tt := range []struct {
		environ []string
		over    func(*Config)
		want    []string
	}{
		{nil, func(*Config) {}, Default().Listen},
		{remote, func(*Config) {}, []string{"off"}},
		{append(remote, "EXECWIRE_LISTEN=stdio"), func(*Config) {}, []string{"stdio"}},
		{remote, func(c *Config) { c.Listen = Default().Listen }, Default().Listen},
		{nil, func(c *Config) { c.RemoteURL, c.ExecutorID = "http://127.0.0.1:1", "a" }, []string{"off"}},
	} {
		cfg, err := Load("", tt.environ, tt.over)
		if err != nil || !slices.Equal(cfg.Listen, tt.want) {
			t.Errorf("%q: listens at %q, %v; want %q", tt.environ, cfg.Listen, err, tt.want)
		}
	}
}
