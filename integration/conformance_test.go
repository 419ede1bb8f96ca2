package integration

import (
	"slices"
	"strings"
	"sync"
	"testing"
)

// elsewhere are scenarios that cannot be replayed from their transcripts, and
// the tests that have what they recorded.
var elsewhere = map[string]string{
	"01_frames":          "TestFramesAreTakenAsTheReferenceTakesThem",
	"01_large_frames":    "TestSizesAreLimitedAsTheReferenceLimitsThem",
	"03_retention":       "TestWhatIsRetainedIsReadAndNoMore",
	"04_write_big":       "TestAFullStdinHoldsBackOnlyItself",
	"08_readFile_limits": "TestBigFilesAreReadWholeUpToTheLimit",
	"10_http_surface":    "TestTheHTTPSurfaceIsTheReferences",
	"10_listen_urls":     "TestListenURLsAreTheReferences",
	"10_signals":         "TestSignalsEndTheServerAndItsProcesses",
	"10_stdio":           "TestStdioIsTheReferences",
	"10_ws_auth":         "TestWebsocketCredentialsAreTheReferences",
}

// recordedEnvironment is what the servers of the reference were started with.
var recordedEnvironment = []string{
	"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home", "CODEX_HOME=/home/.codex", "LANG=C.UTF-8", "ORACLE_SERVER_VAR=server-env",
}

// What was recorded with two versions of the reference happens with us, but for
// the deliberate differences of the allow files. An allowance that is not
// needed fails, so that the files say no more than is so, unless its reason says
// "sometimes".
func TestConversationsAreTheReferences(t *testing.T) {
	for _, version := range []string{oldVersion, newVersion} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			allowed := readAllowances(t, version)
			shared := newServerIn(t, recordedEnvironment, nil)
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
							server = newServerIn(t, recordedEnvironment, tune)
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
