package daemon_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/audit"
	"github.com/execwire/execwire/internal/audit/audittest"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/wsconn"
)

// canary is in everything of which the audit log must have nothing.
const canary = "c4nary"

// auditTo configures an audit log and returns its path.
func auditTo(cfg *config.Config, dir string) string {
	cfg.AuditFile = filepath.Join(dir, "audit.log")
	return cfg.AuditFile
}

// TestAudit_EveryAPI makes the same calls through every API, and then reads what the log has.
func TestAudit_EveryAPI(t *testing.T) {
	dir := t.TempDir()
	var path string
	hub := hub(t, false)
	o := open(t, func(cfg *config.Config) {
		asExecutor(hub)(cfg)
		cfg.Listen = []string{"ws://127.0.0.1:0", "tcp://127.0.0.1:0"}
		cfg.AuditReads = "on"
		path = auditTo(cfg, dir)
	})
	o.byContract("grpc", dir, o.grpc(1))
	o.byContract("local", dir, o.daemon.Conn())
	o.byContract("connect", dir, dialHTTP(t, "http"+strings.TrimPrefix(o.urls[1], "tcp"), "connect, JSON"))
	o.awaitExecutor(hub)
	through := o.through(hub)
	o.startAndEnd("relay", dir, through.Processes())
	o.changeFiles("relay", dir, through.Files())

	c := o.dialSession(nil)
	started := c.ask("process/start", map[string]any{"processId": "jsonrpc", "argv": []string{"cat"}, "cwd": dir,
		"env": map[string]string{"PATH": "/usr/bin:/bin", "SECRET": canary}, "tty": false, "pipeStdin": true})
	if started["error"] != nil {
		t.Fatal(started)
	}
	c.ask("process/write", map[string]any{"processId": "jsonrpc", "chunk": "YzRuYXJ5"}) // the canary
	c.ask("process/terminate", map[string]any{"processId": "jsonrpc"})
	written := c.ask("fs/writeFile", map[string]any{"path": "file://" + dir + "/jsonrpc", "dataBase64": "YzRuYXJ5"})
	if written["error"] != nil {
		t.Fatal(written)
	}
	if err := c.conn.Close(wsconn.CodeNormal, ""); err != nil {
		t.Fatal(err)
	}
	o.end()

	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), canary) {
		t.Errorf("the log has secrets: %s", text)
	}
	records := audittest.Parse(t, text)
	for api, credential := range map[string]string{"grpc": "loopback", "local": "in-process", "connect": "loopback", "relay": "relay", "jsonrpc": "loopback"} {
		expectStart(t, records, api, credential)
		expectRecord(t, records, "the file of "+api, func(r audit.Record) bool {
			return r.Type == audit.Intent && r.Action == "file.write" && r.Path == filepath.Join(dir, api) && r.Credential == credential
		})
		if api == "jsonrpc" {
			continue
		}
		expectRecord(t, records, "the link of "+api, func(r audit.Record) bool {
			return r.Type == audit.Intent && r.Action == "file.rename" && r.Path == filepath.Join(dir, api) && r.To == filepath.Join(dir, api+"2")
		})
		expectRecord(t, records, "the read of "+api, func(r audit.Record) bool {
			return r.Type == audit.Intent && r.Action == "file.read" && r.Path == filepath.Join(dir, api)
		})
	}
	if !strings.Contains(o.log.String(), `msg="a process was started"`) || !strings.Contains(o.log.String(), `msg="a process has ended"`) {
		t.Error("the ordinary log lacks a start or an end")
	}
}

// byContract makes the calls with the generated clients.
func (o *opened) byContract(id, dir string, conn grpc.ClientConnInterface) {
	o.t.Helper()
	o.startAndEnd(id, dir, execwirev1.NewProcessServiceClient(conn))
	o.changeFiles(id, dir, execwirev1.NewFileSystemServiceClient(conn))
}

// startAndEnd starts a process with a secret in its environment, gives it input, and ends it.
func (o *opened) startAndEnd(id, dir string, processes execwirev1.ProcessServiceClient) {
	o.t.Helper()
	_, err := processes.StartProcess(o.ctx, &execwirev1.StartProcessRequest{
		ProcessId: id, Io: &execwirev1.ProcessIo{Io: &execwirev1.ProcessIo_Pipes{Pipes: &execwirev1.PipeIo{Stdin: execwirev1.StdinMode_STDIN_MODE_PIPE}}},
		Command: &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Direct{Direct: &execwirev1.DirectCommand{
			Argv: []string{"cat"}, WorkingDirectory: dir, Env: map[string]string{"PATH": "/usr/bin:/bin", "SECRET": canary}}}},
	})
	if err != nil {
		o.t.Fatal(err)
	}
	if _, err := processes.WriteStdin(o.ctx, &execwirev1.WriteStdinRequest{ProcessId: id, Data: []byte(canary)}); err != nil {
		o.t.Fatal(err)
	}
	if _, err := processes.TerminateProcess(o.ctx, &execwirev1.TerminateProcessRequest{ProcessId: id}); err != nil {
		o.t.Fatal(err)
	}
}

// changeFiles writes, reads and renames a file.
func (o *opened) changeFiles(id, dir string, files execwirev1.FileSystemServiceClient) {
	o.t.Helper()
	path := filepath.Join(dir, id)
	if _, err := files.WriteFile(o.ctx, &execwirev1.WriteFileRequest{Path: path, Data: []byte(canary)}); err != nil {
		o.t.Fatal(err)
	}
	if _, err := files.ReadFile(o.ctx, &execwirev1.ReadFileRequest{Path: path}); err != nil {
		o.t.Fatal(err)
	}
	if _, err := files.RenamePath(o.ctx, &execwirev1.RenamePathRequest{SourcePath: path, DestinationPath: path + "2"}); err != nil {
		o.t.Fatal(err)
	}
}

// end ends the daemon at once, which completes its audit log.
func (o *opened) end() {
	o.stop(errOver)
	o.stopNow(errOver)
	<-o.served
}

// expectStart expects intent, result and end of the process of an API, and its termination.
func expectStart(t *testing.T, records []audit.Record, api, credential string) {
	t.Helper()
	find := func(what string, holds func(r audit.Record) bool) audit.Record {
		t.Helper()
		return expectRecord(t, records, what+" of "+api, func(r audit.Record) bool { return r.Process == api && holds(r) })
	}
	intent := find("the intent", func(r audit.Record) bool { return r.Type == audit.Intent && r.Action == "process.start" })
	result := find("the result", func(r audit.Record) bool { return r.Type == audit.Result && r.Call == intent.Call })
	ended := find("the end", func(r audit.Record) bool { return r.Action == "process.end" })
	find("the termination", func(r audit.Record) bool { return r.Type == audit.Intent && r.Action == "process.terminate" })
	by := api
	if api == "relay" {
		by = "grpc"
	}
	if intent.API != by || intent.Credential != credential || !slices.Equal(intent.Argv, []string{"cat"}) || intent.Rule != "permission start" || intent.Decision != "allowed" {
		t.Errorf("the intent is %+v", intent)
	}
	if result.PID == 0 || result.PID != ended.PID || result.Status != "OK" || result.Decision != "allowed" || intent.Principal == "" || ended.Principal != intent.Principal {
		t.Errorf("the result is %+v, the end %+v", result, ended)
	}
	if ended.BytesIn != uint64(len(canary)) || ended.Exit == nil || ended.Exit.Cause != "terminated" {
		t.Errorf("the end is %+v with %+v", ended, ended.Exit)
	}
}

// expectRecord returns the one record that holds.
func expectRecord(t *testing.T, records []audit.Record, what string, holds func(audit.Record) bool) (found audit.Record) {
	t.Helper()
	count := 0
	for _, r := range records {
		if holds(r) {
			found = r
			count++
		}
	}
	if count != 1 {
		t.Errorf("%s is there %d times", what, count)
	}
	return found
}

// TestAudit_Denials has one record for each call that a rule denies, and no token.
func TestAudit_Denials(t *testing.T) {
	var path string
	l := lock(t, func(cfg *config.Config) {
		path = auditTo(cfg, t.TempDir())
		cfg.DirectExec = "off"
	}, func(l *locked) string {
		return l.principal("reader", `"read_files"`) + l.principal("starter", `"start", "write_files"`)
	})
	conn, files, processes := l.dial(onUnix), execwirev1.NewFileSystemServiceClient(l.dial(onUnix)), execwirev1.NewProcessServiceClient(l.dial(onUnix))
	byHTTP := dialHTTP(t, "http"+strings.TrimPrefix(l.urls[onGRPC], "tcp"), "connect, JSON")
	l.expectUnknown(list(l.showing("Bearer "+tokenOf(canary)), conn))
	l.expectUnknown(list(l.showing("Bearer "+tokenOf(canary)), byHTTP))
	if _, err := wsconn.Dial(l.ctx, "ws"+strings.TrimPrefix(l.urls[onGRPC], "tcp"), wsconn.DialOptions{Header: http.Header{"Authorization": {"Bearer " + tokenOf(canary)}}}); err == nil {
		t.Error("a websocket is accepted with a wrong token")
	}
	_, err := files.WriteFile(l.as("reader"), &execwirev1.WriteFileRequest{Path: "/denied", Data: []byte(canary)})
	l.expect(err, codes.PermissionDenied, "CALL_NOT_ALLOWED")
	_, err = execwirev1.NewFileSystemServiceClient(byHTTP).WriteFile(l.as("reader"), &execwirev1.WriteFileRequest{Path: "/denied", Data: []byte(canary)})
	l.expect(err, codes.PermissionDenied, "CALL_NOT_ALLOWED")
	_, err = execwirev1.NewFileSystemServiceClient(conn).OpenFile(l.as("reader"), &execwirev1.OpenFileRequest{
		HandleId: "h", Path: "/denied", Mode: execwirev1.OpenMode_OPEN_MODE_REPLACE})
	l.expect(err, codes.PermissionDenied, "CALL_NOT_ALLOWED")
	_, err = processes.StartProcess(l.as("starter"), command("true"))
	l.expect(err, codes.PermissionDenied, "COMMAND_FORM_DISABLED")

	records := audittest.Read(t, path)
	if text, _ := os.ReadFile(path); strings.Contains(string(text), canary) {
		t.Errorf("the log has secrets: %s", text)
	}
	for _, want := range []audit.Record{
		{Action: "authenticate", Caller: audit.Caller{API: "grpc", Credential: "token"}, Rule: "token invalid", Reason: "UNAUTHENTICATED", Method: "execwire.v1.ProcessService/ListProcesses"},
		{Action: "authenticate", Caller: audit.Caller{API: "http", Credential: "token"}, Rule: "token invalid", Reason: "UNAUTHENTICATED"},
		{Action: "authenticate", Caller: audit.Caller{API: "jsonrpc", Credential: "token"}, Rule: "token invalid", Reason: "UNAUTHENTICATED"},
		{Action: "file.write", Caller: audit.Caller{Principal: "reader", API: "grpc", Credential: "token"}, Rule: "permission write_files", Reason: "CALL_NOT_ALLOWED", Method: "execwire.v1.FileSystemService/WriteFile"},
		{Action: "file.write", Caller: audit.Caller{Principal: "reader", API: "connect", Credential: "token"}, Rule: "permission write_files", Reason: "CALL_NOT_ALLOWED", Method: "execwire.v1.FileSystemService/WriteFile"},
		{Action: "file.open", Caller: audit.Caller{Principal: "reader", API: "grpc", Credential: "token"}, Rule: "permission write_files", Reason: "CALL_NOT_ALLOWED", Method: "execwire.v1.FileSystemService/OpenFile", Path: "/denied"},
	} {
		expectRecord(t, records, want.Action+" by "+want.API, func(r audit.Record) bool {
			return r.Type == audit.Denied && r.Decision == "denied" && r.Action == want.Action && r.API == want.API && r.Principal == want.Principal &&
				r.Credential == want.Credential && r.Rule == want.Rule && r.Reason == want.Reason && r.Method == want.Method && r.Path == want.Path && r.Peer != ""
		})
	}
	expectRecord(t, records, "the result of what a setting denies", func(r audit.Record) bool {
		return r.Type == audit.Result && r.Action == "process.start" && r.Decision == "denied" && r.Rule == "COMMAND_FORM_DISABLED" && r.Principal == "starter"
	})
	if len(records) != 8 { // with the intent of the last
		t.Errorf("there are %d records: %+v", len(records), records)
	}
}

// TestAudit_RunStream has records of what the owner of a run does within its stream.
func TestAudit_RunStream(t *testing.T) {
	var path string
	o := open(t, func(cfg *config.Config) {
		onOnePort(cfg)
		path = auditTo(cfg, t.TempDir())
	})
	run, err := execwirev1.NewProcessServiceClient(o.byGRPC()).RunProcess(o.ctx)
	if err != nil {
		t.Fatal(err)
	}
	send := func(m *execwirev1.RunProcessRequest) {
		t.Helper()
		if err := run.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	start := command("sleep", "1000")
	start.ProcessId = "p"
	send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Start{Start: &execwirev1.RunStart{Process: start}}})
	send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Signal{Signal: &execwirev1.RunSignal{Signal: execwirev1.Signal_SIGNAL_USR1}}})
	for closed := false; !closed; {
		m, err := run.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, event := range m.GetEvents().GetEvents() {
			closed = closed || event.GetClosed() != nil
		}
	}
	if err := run.CloseSend(); err != nil {
		t.Fatal(err)
	}
	o.end()
	records := audittest.Read(t, path)
	intent := expectRecord(t, records, "the intent of the signal", func(r audit.Record) bool {
		return r.Type == audit.Intent && r.Action == "process.signal" && r.Process == "p" && r.Signal == "SIGUSR1" && r.Principal == "loopback" && r.Peer != ""
	})
	expectRecord(t, records, "its result", func(r audit.Record) bool {
		return r.Type == audit.Result && r.Call == intent.Call && r.Status == "OK" && r.Decision == "allowed"
	})
	expectRecord(t, records, "the end", func(r audit.Record) bool { return r.Action == "process.end" && r.Exit.Signal == 10 })
}
