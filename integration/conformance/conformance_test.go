package conformance

import (
	"github.com/execwire/execwire/integration/harness"
	"slices"
	"strings"
	"sync"
	"testing"
)

// elsewhere are scenarios that cannot be replayed from their transcripts, with the tests that
// cover them.
var elsewhere = map[string]string{
	"01_frames":          "TestFrames_MatchTheReference",
	"01_large_frames":    "TestFrames_SizeLimits_MatchTheReference",
	"03_retention":       "TestRead_ReturnsOnlyWhatIsRetained",
	"04_write_big":       "TestStdin_Full_DelaysOnlyItself",
	"08_readFile_limits": "TestReadFile_UpToTheLimit_IsComplete",
	"10_http_surface":    "TestHTTP_MatchesTheReference",
	"10_listen_urls":     "TestListenURLs_MatchTheReference",
	"10_signals":         "TestSignal_EndsTheServerAndItsProcesses",
	"10_stdio":           "TestStdio_MatchesTheReference",
	"10_ws_auth":         "TestWebsocketCredentials_MatchTheReference",
}

// recordedEnvironment is the environment of the recorded servers.
var recordedEnvironment = []string{
	"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home", "CODEX_HOME=/home/.codex", "LANG=C.UTF-8", "ORACLE_SERVER_VAR=server-env",
}

// Our server behaves like two recorded versions of the reference, except for the deliberate
// differences in the allow files. An allowance that is not needed fails the test, unless its
// reason contains "sometimes".
func TestTranscripts_Replay(t *testing.T) {
	harness.Slow(t)
	for _, version := range []string{oldVersion, newVersion} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			allowed := readAllowances(t, version)
			shared := harness.NewServerIn(t, recordedEnvironment, nil)
			var mu sync.Mutex
			var needed []string         // guarded by mu
			played := map[string]bool{} // guarded by mu
			t.Run("scenarios", func(t *testing.T) {
				for _, scenario := range scenariosOf(t, version) {
					if elsewhere[scenario] != "" {
						continue
					}
					t.Run(scenario, func(t *testing.T) {
						t.Parallel()
						server := shared
						if tune := tunes[scenario]; tune != nil {
							server = harness.NewServerIn(t, recordedEnvironment, tune)
						}
						r := newReplay(t, version, scenario, server, allowed)
						r.run()
						keys := r.verdict()
						mu.Lock()
						defer mu.Unlock()
						needed = append(needed, keys...)
						played[scenario] = true
					})
				}
			})
			if t.Failed() {
				return
			}
			for _, key := range allowed.sortedKeys() {
				if played[scenarioOf(key)] && !slices.Contains(needed, key) && !strings.HasPrefix(allowed[key], "sometimes ") {
					t.Errorf("allow-%s.txt allows %s, which does not differ", version, key)
				}
			}
		})
	}
}
