package hostile

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/testcert"
)

// soakUser is a user of its own, because the system counts processes, inotify instances and
// epoll watches per user.
const soakUser = 61140

// soakAttackers is how many principals attack with a token of their own, beside the loopback
// principal.
const soakAttackers = 4

// soakSettings has limits that the attacks reach. Sessions, records and uploads of attackers
// expire soon.
var soakSettings = append([]string{
	"GOGC=25",
	"EXECWIRE_DEFAULT_GRACE=1s", "EXECWIRE_CLOSED_PROCESS_RETENTION=1s", "EXECWIRE_UPLOAD_RETENTION=1s",
	"EXECWIRE_SESSIONS_PER_PRINCIPAL=200", "EXECWIRE_SESSIONS_TOTAL=2000", "EXECWIRE_PROCESSES_PER_SESSION=30",
	"EXECWIRE_RETAINED_OUTPUT_BYTES_PER_PROCESS=128KiB", "EXECWIRE_RETAINED_OUTPUT_BYTES_TOTAL=64MiB",
	"EXECWIRE_SNAPSHOT_BYTES=16KiB", "EXECWIRE_STDIN_QUEUE_BYTES=1MiB", "EXECWIRE_UNSEEN_PROCESSES_PER_PRINCIPAL=100",
	"EXECWIRE_READ_FILE_BYTES=512KiB", "EXECWIRE_OUTGOING_BYTES_PER_CONNECTION=64KiB", "EXECWIRE_ANSWER_BYTES_TOTAL=32MiB",
	"EXECWIRE_ABANDONED_UPLOADS_PER_PRINCIPAL=16", "EXECWIRE_UPLOADS_PER_PRINCIPAL=64",
}, tightMessages...)

// soakMemory returns how much memory a server may use by its settings, in bytes: the sum of all
// limits, with the garbage that GOGC permits.
func soakMemory(cfg config.Config) (sum int64, terms string) {
	const (
		program  = 64 << 20  // of an idle server
		perConn  = 128 << 10 // buffers and stacks of a connection
		session  = 16 << 10
		perValue = 32 // times the bytes of a message that is read are its values
	)
	readAtOnce := int64(max(1, runtime.GOMAXPROCS(0)/2))
	var text strings.Builder
	add := func(name string, bytes int64) {
		sum += bytes
		fmt.Fprintf(&text, " %s %d MiB,", name, bytes>>20)
	}
	add("program", program)
	add("retained_output_bytes_total", int64(cfg.RetainedTotal))
	add("incoming_bytes_total", int64(cfg.IncomingTotal))
	add("messages that are read", readAtOnce*int64(cfg.Request)*perValue)
	add("answer_bytes_total", int64(cfg.AnswersTotal))
	// A client of JSON-RPC may have one answer more, and refusals.
	add("connections", int64(cfg.Connections)*(int64(cfg.Outgoing)+int64(cfg.ReadFile)*4/3)+3*int64(cfg.Connections)*perConn)
	add("sessions", int64(cfg.SessionsTotal)*session)
	add("uploads", (soakAttackers+2)*int64(cfg.Uploads)*perConn)
	return sum + sum/4, text.String()
}

// soakServer is a server in a soak, with a user of its own and inside control groups that bound
// failures.
type soakServer struct {
	*harness.Command
	dir    string            // of the user of the server
	tokens map[string]string // files, by principal
	group  string            // the control group below which those of processes are
}

// newSoakServer starts it with a table of principals: a neighbour, numbered attackers, and
// loopback without a token.
func newSoakServer(t *testing.T, settings ...string) *soakServer {
	t.Helper()
	s := &soakServer{dir: harness.PublicDir(t), tokens: map[string]string{}}
	binary := filepath.Join(s.dir, "execwire")
	harness.CopyFile(t, harness.Execwire, binary)
	for _, name := range []string{"own", "own/tmp", "own/uploads"} {
		if err := os.Mkdir(filepath.Join(s.dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	clients := harness.ShortDir(t)
	own := filepath.Join(s.dir, "own")
	table := "[[principal]]\nname=\"local\"\nloopback=true\nallow=[\"all\"]\n"
	names := []string{"neighbour"}
	for i := range soakAttackers {
		names = append(names, fmt.Sprint("attacker-", i))
	}
	for _, name := range names {
		token := []byte(strings.Repeat(name, 6))
		s.tokens[name] = testcert.WriteFile(t, filepath.Join(clients, name), token)
		table += fmt.Sprintf("[[principal]]\nname=%q\ntoken_file=%q\nallow=[\"all\"]\n", name, testcert.WriteFile(t, filepath.Join(own, name), token))
	}
	principals := testcert.WriteFile(t, filepath.Join(own, "principals.toml"), []byte(table))
	owned := func(path string) {
		if err := filepath.WalkDir(path, func(path string, _ os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return os.Chown(path, soakUser, soakUser)
		}); err != nil {
			t.Fatal(err)
		}
	}
	owned(own)
	pids := harness.NewTestGroup(t, "pids", map[string]string{"pids.max": "6000"})
	s.group = newDelegatedGroup(t)
	script := fmt.Sprintf(`set -e
echo $$ > %s/cgroup.procs
echo $$ > %s/cgroup.procs
ulimit -u 5000
exec setpriv --reuid=%d --regid=%[3]d --clear-groups "$0" "$@"`, pids, s.group, soakUser)
	s.Command = harness.Prepare(exec.Command("/bin/bash", "-c", script, binary, "serve", "--listen", "unix://"+filepath.Join(own, "s"),
		"--listen", "tcp://127.0.0.1:0"))
	s.Env = append(s.Env, settings...)
	s.Env = append(s.Env, "EXECWIRE_PRINCIPALS_FILE="+principals, "TMPDIR="+filepath.Join(own, "tmp"))
	s.Listen(t, 2)
	return s
}

// newDelegatedGroup creates a cgroup v2 that belongs to soakUser.
func newDelegatedGroup(t *testing.T) string {
	t.Helper()
	root := "/sys/fs/cgroup/unified"
	if _, err := os.Stat(root); err != nil {
		root = "/sys/fs/cgroup"
	}
	dir, err := os.MkdirTemp(root, "execwire-soak-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		harness.Eventually(t, "the control group is empty", func() bool { return os.Remove(dir) == nil })
	})
	for _, name := range []string{"", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"} {
		if err := os.Chown(filepath.Join(dir, name), soakUser, soakUser); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// header returns the upgrade header of a principal.
func (s *soakServer) header(t testing.TB, principal string) http.Header {
	t.Helper()
	token, err := os.ReadFile(s.tokens[principal])
	if err != nil {
		t.Fatal(err)
	}
	return http.Header{"Authorization": {"Bearer " + string(token)}}
}

// keptControlGroups is how many empty control groups a server keeps for later processes.
const keptControlGroups = 64

// controlGroups lists the control groups that the server created for processes.
func (s *soakServer) controlGroups(t testing.TB) []string {
	t.Helper()
	groups, err := filepath.Glob(filepath.Join(s.group, "*", "*", "cgroup.procs"))
	if err != nil {
		t.Fatal(err)
	}
	return groups
}

// temporaryFiles lists the directory for temporary files.
func (s *soakServer) temporaryFiles(t testing.TB) (names []string) {
	t.Helper()
	dir := filepath.Join(s.dir, "own", "tmp")
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err == nil && path != dir { // other files were removed meanwhile
			names = append(names, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// publicDirOf creates a directory of the server's user.
func (s *soakServer) publicDirOf(t *testing.T) string {
	t.Helper()
	dir := harness.PublicDir(t)
	if err := os.Chown(dir, soakUser, soakUser); err != nil {
		t.Fatal("user "+strconv.Itoa(soakUser), err)
	}
	return dir
}
