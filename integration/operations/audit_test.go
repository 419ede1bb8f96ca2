package operations

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/audit"
	"github.com/execwire/execwire/internal/audit/audittest"
	"github.com/execwire/execwire/internal/errorinfo"
)

// auditedServer is a server whose audit log is on a small disk.
type auditedServer struct {
	*harness.Command
	t         *testing.T
	files     execwirev1.FileSystemServiceClient
	processes execwirev1.ProcessServiceClient
	log, fill string // as this process sees them
	dir       string // for files, on another disk
	written   int    // files
}

func newAuditedServer(t *testing.T, failure string) *auditedServer {
	t.Helper()
	disk := t.TempDir()
	argv := harness.OnSmallDisk(disk, harness.Execwire, "serve", "--listen", "tcp://127.0.0.1:0",
		"--audit-file", filepath.Join(disk, "audit.log"), "--audit-failure", failure)
	s := &auditedServer{Command: harness.Prepare(exec.Command(argv[0], argv[1:]...)), t: t, dir: t.TempDir()}
	s.Listen(t, 1)
	conn := harness.Dial(t, "tcp", s.Address(harness.TCPTransport))
	s.files, s.processes = execwirev1.NewFileSystemServiceClient(conn), execwirev1.NewProcessServiceClient(conn)
	s.log, s.fill = s.PathOf(filepath.Join(disk, "audit.log")), s.PathOf(filepath.Join(disk, "fill"))
	return s
}

// write writes the next file.
func (s *auditedServer) write() error {
	_, err := s.files.WriteFile(harness.Context(s.t), &execwirev1.WriteFileRequest{Path: s.next(), Data: []byte("x")})
	if err == nil {
		s.written++
	}
	return err
}

// next returns the path of the next file.
func (s *auditedServer) next() string { return filepath.Join(s.dir, strconv.Itoa(s.written)) }

// mustWrite writes a file, which must not fail.
func (s *auditedServer) mustWrite() {
	s.t.Helper()
	if err := s.write(); err != nil {
		s.t.Fatal(err)
	}
}

// free makes space on the disk.
func (s *auditedServer) free() {
	s.t.Helper()
	if err := os.Remove(s.fill); err != nil {
		s.t.Fatal(err)
	}
}

// records returns the records, without lines that a full disk has torn.
func (s *auditedServer) records() []audit.Record {
	s.t.Helper()
	text, err := os.ReadFile(s.log)
	if err != nil {
		s.t.Fatal(err)
	}
	var whole []byte
	for line := range bytes.Lines(text) {
		if json.Valid(line) {
			whole = append(whole, line...)
		}
	}
	return audittest.Parse(s.t, whole)
}

// With audit_failure = refuse nothing is done that has no record; what needs none goes on.
func TestAudit_FullDisk_Refuses(t *testing.T) {
	s := newAuditedServer(t, "refuse")
	s.mustWrite()
	harness.FillDisk(t, s.fill)
	var refused error
	harness.Eventually(t, "a call is refused", func() bool { // what is left of a page is used first
		refused = s.write()
		return refused != nil
	})
	if errorinfo.Of(refused).GetReason() != "AUDIT_LOG_FAILED" {
		t.Fatalf("on a full disk a file is written with %v", refused)
	}
	if _, err := os.Stat(s.next()); err == nil {
		t.Errorf("%s is there, which was refused", s.next())
	}
	if _, err := s.processes.ListProcesses(harness.Context(t), &execwirev1.ListProcessesRequest{}); err != nil {
		t.Errorf("a call without a record fails: %v", err)
	}
	s.free()
	s.mustWrite()
	confined := s.next()
	if _, err := s.files.WriteFile(harness.Context(t), &execwirev1.WriteFileRequest{Path: confined, Sandbox: harness.OnlyWritable(s.dir)}); err != nil {
		t.Fatal(err)
	}
	s.written++
	recorded := map[string]bool{}
	for _, r := range s.records() {
		if r.Type == audit.Intent && r.Action == "file.write" {
			recorded[r.Path] = true // twice if the torn line lacks no more than its end
		}
		if r.Type == audit.Result && r.Path == confined &&
			(r.Enforced == nil || r.Enforced.Backend != "bubblewrap" || r.Enforced.Files != "restricted" || r.Enforced.Network != "restricted") {
			t.Errorf("the sandbox of a confined write is recorded as %+v", r.Enforced)
		}
	}
	if len(recorded) != s.written {
		t.Errorf("%d files are written, and %d have records", s.written, len(recorded))
	}
}

// With audit_failure = drop everything is done, and the log says how much has no record.
func TestAudit_FullDisk_Drops(t *testing.T) {
	s := newAuditedServer(t, "drop")
	harness.FillDisk(t, s.fill)
	said := func(text string) bool { return strings.Contains(s.Errors.String(), text) }
	harness.Eventually(t, "records are dropped", func() bool {
		s.mustWrite()
		return said(`msg="the audit log cannot be written"`)
	})
	s.mustWrite() // neither of its records is there, and of those before at least one
	s.free()
	s.mustWrite()
	records := s.records()
	if len(records) == 0 || len(records) >= 2*s.written {
		t.Errorf("%d records are there of %d files", len(records), s.written)
	}
	harness.Eventually(t, "the log says how much was dropped", func() bool {
		return said(`msg="the audit log is written again"`) && said("dropped=")
	})
}
