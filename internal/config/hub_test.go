package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestHubSettings_HaveDescriptionsAndValidDefaults(t *testing.T) {
	cfg := DefaultHub()
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, s := range HubSettings() {
		mayBeEmpty := s.Unit == "path" || s.Unit == "text" || s.Unit == "origins" || s.Unit == "names"
		if s.Name == "" || s.Unit == "" || s.Help == "" || s.Default == "" && !mayBeEmpty || seen[s.Name] {
			t.Errorf("setting %+v lacks a description or repeats a name", s)
		}
		seen[s.Name] = true
	}
}

func TestLoadHub_FileEnvironmentAndFlags_OverrideDefaults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hub.toml")
	if err := os.WriteFile(path, []byte("frame_bytes = \"1MiB\"\nstream_grace = \"10s\"\nexecutors = 5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	environ := []string{"EXECWIRE_HUB_STREAM_GRACE=20s", "EXECWIRE_HUB_EXECUTORS=6", "EXECWIRE_STREAM_GRACE=1s", "EXECWIRE_HUB=ignored"}
	cfg, _, err := LoadHub(path, environ, func(h *Hub) { h.Executors = 7 })
	if err != nil || cfg.Frame != 1<<20 || time.Duration(cfg.StreamGrace) != 20*time.Second || cfg.Executors != 7 {
		t.Errorf("LoadHub = %+v, %v", cfg, err)
	}
}

func TestLoadHub_InvalidSettings_Fail(t *testing.T) {
	for _, tc := range []struct{ name, text, wantText string }{
		{"unknown", "frames = 1", "frames is not a setting: execwire-hub config example"},
		{"a daemon's", "default_grace = \"1s\"", "default_grace is not a setting"},
		{"too small", "frame_bytes = 1", "frame_bytes is below 64KiB"},
		{"too large", "stream_grace = \"2h\"", "stream_grace is above 1h"},
		{"nowhere", "listen = []", "listen is empty"},
		{"allow", "allow_http = \"yes\"", "allow_http cannot be \"yes\""},
		{"presence", "presence = \"disk\"", "presence cannot be \"disk\": write memory or nats"},
		{"directory", "presence = \"nats\"\npresence_directory = \"x\"", "presence_directory cannot be \"x\""},
		{"memory, directory", "presence_directory = \"/x\"", "presence is memory"},
		{"memory, cluster", "cluster_listen = \"127.0.0.1:1\"", "presence is memory"},
		{"one way", "presence = \"nats\"\ncluster_routes = [\"a:1\"]", "cluster_routes has nodes that could not reach"},
		{"no key", "presence = \"nats\"\ncluster_listen = \"a:1\"\npublic_url = \"https://a\"", "cluster_listen needs url_key_file"},
		{"no public URL", "presence = \"nats\"\ncluster_listen = \"a:1\"\nurl_key_file = \"/a\"", "public_url"},
		{"public URL", "public_url = \"hub.example.org\"", "public_url cannot be"},
		{"secret URL", "public_url = \"https://a:b@hub.example.org\"", "public_url cannot be"},
		{"wildcard domain", "preview_domain = \"*.example.org\"", "preview_domain cannot be \"*.example.org\": write a domain in lower case"},
		{"domain with port", "preview_domain = \"example.org:443\"", "preview_domain cannot be"},
		{"address as domain", "preview_domain = \"127.0.0.1\"", "preview_domain cannot be"},
		{"lifetime of links", "preview_link_lifetime = \"500ms\"", "preview_link_lifetime is below 1s"},
		{"no links", "preview_links_per_principal = 0", "preview_links_per_principal is below 1"},
		{"no connections to a port", "preview_connections_per_port = 0", "preview_connections_per_port is below 1"},
		{"no connections to an executor", "preview_connections_per_executor = 0", "preview_connections_per_executor is below 1"},
		{"console", "console = \"yes\"", "console cannot be \"yes\": write on or off"},
		{"no sessions", "console_sessions_per_principal = 0", "console_sessions_per_principal is below 1"},
		{"issuer", "console_oidc_issuer = \"http://accounts.example.org\"\nconsole_oidc_client_id = \"x\"", "console_oidc_issuer cannot be \"http://accounts.example.org\""},
		{"issuer without client", "console_oidc_issuer = \"http://127.0.0.1:1\"", "console_oidc_issuer needs console_oidc_client_id"},
		{"secret without issuer", "console_oidc_client_secret_file = \"/a\"", "console_oidc_issuer needs console_oidc_client_id"},
		{"issuer without table", "console_oidc_issuer = \"https://a.example.org\"\nconsole_oidc_client_id = \"x\"", "console_oidc_issuer needs principals_file"},
		{"total", "frame_bytes = \"64MiB\"\nqueue_bytes_total = \"1MiB\"", "queue_bytes_total is below frame_bytes"},
		{"idle", "stream_grace = \"1h\"", "stream_idle is below stream_grace"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "hub.toml")
			if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, _, err := LoadHub(path, nil)
			var typed *Error
			if !errors.As(err, &typed) || !strings.Contains(err.Error(), tc.wantText) {
				t.Errorf("%v, want %q", err, tc.wantText)
			}
		})
	}
}
