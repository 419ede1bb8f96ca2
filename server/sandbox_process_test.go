package server_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/sandbox"
)

// managed returns a policy that restricts the network, and files to the entries.
func managed(entries ...*execwirev1.SandboxEntry) *execwirev1.SandboxPolicy {
	return &execwirev1.SandboxPolicy{Policy: &execwirev1.SandboxPolicy_Managed{Managed: &execwirev1.ManagedSandbox{
		FileSystem: &execwirev1.FileSystemPolicy{Policy: &execwirev1.FileSystemPolicy_Restricted{
			Restricted: &execwirev1.RestrictedFileSystem{Entries: entries}}}}}}
}

func special(kind execwirev1.SpecialPathKind, access execwirev1.SandboxAccess) *execwirev1.SandboxEntry {
	return &execwirev1.SandboxEntry{Access: access, Place: &execwirev1.SandboxEntry_Special{Special: &execwirev1.SpecialPath{Kind: kind}}}
}

func place(path string, access execwirev1.SandboxAccess) *execwirev1.SandboxEntry {
	return &execwirev1.SandboxEntry{Access: access, Place: &execwirev1.SandboxEntry_Path{Path: path}}
}

// readOnly grants read access to all files.
func readOnly() *execwirev1.SandboxPolicy {
	return managed(special(execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_ROOT, execwirev1.SandboxAccess_SANDBOX_ACCESS_READ))
}

// writable grants read access to all files and write access to the directories.
func writable(dirs ...string) *execwirev1.SandboxPolicy {
	policy := readOnly()
	restricted := policy.GetManaged().GetFileSystem().GetRestricted()
	for _, dir := range dirs {
		restricted.Entries = append(restricted.Entries, place(dir, execwirev1.SandboxAccess_SANDBOX_ACCESS_WRITE))
	}
	return policy
}

// sandboxesOf returns sandboxes with the given backends only.
func sandboxesOf(t *testing.T, backends ...sandbox.Backend) *sandbox.Sandboxes {
	t.Helper()
	without := []sandbox.Backend{sandbox.Bubblewrap, sandbox.Landlock}
	for _, backend := range backends {
		without = deleted(without, backend)
	}
	sandboxes := sandbox.New(sandbox.Options{Without: without})
	t.Cleanup(sandboxes.Close)
	for _, status := range sandboxes.Statuses() {
		if len(deleted(backends, status.Backend)) < len(backends) && status.Err != nil {
			t.Fatal(status.Err)
		}
	}
	return sandboxes
}

func deleted(backends []sandbox.Backend, backend sandbox.Backend) (rest []sandbox.Backend) {
	for _, b := range backends {
		if b != backend {
			rest = append(rest, b)
		}
	}
	return rest
}

// eachBackend runs a test once per backend, with a server that has only that one.
func eachBackend(t *testing.T, test func(t *testing.T, f *fixture, backend execwirev1.SandboxBackend), change ...func(*settings)) {
	t.Helper()
	for backend, name := range map[sandbox.Backend]execwirev1.SandboxBackend{
		sandbox.Bubblewrap: execwirev1.SandboxBackend_SANDBOX_BACKEND_BUBBLEWRAP,
		sandbox.Landlock:   execwirev1.SandboxBackend_SANDBOX_BACKEND_LANDLOCK,
	} {
		t.Run(backend.String(), func(t *testing.T) {
			sandboxes := sandboxesOf(t, backend)
			test(t, newFixture(t, append(change, func(s *settings) { s.sandboxes = sandboxes })...), name)
		})
	}
}

func realDirectory(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// confinedCall is a start request with a policy.
func confinedCall(req *execwirev1.StartProcessRequest, policy *execwirev1.SandboxPolicy) *execwirev1.StartProcessRequest {
	req.GetCommand().GetDirect().Sandbox = policy
	return req
}

// exists reports whether a file exists.
func exists(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Lstat(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

func TestConfinedStart_ReportsBackend(t *testing.T) {
	eachBackend(t, func(t *testing.T, f *fixture, backend execwirev1.SandboxBackend) {
		inside, outside := realDirectory(t), realDirectory(t)
		script := "echo x > " + inside + "/file && echo y > " + outside + "/file"
		started := f.start(confinedCall(shell("p", script), writable(inside)))
		watched := f.watch(&execwirev1.WatchProcessRequest{ProcessId: "p"})
		if exit := watched.exit; exit.GetExitCode() == 0 || !exit.GetSandboxDenied() {
			t.Errorf("%v, %q", exit, watched.stderr())
		}
		if !exists(t, inside+"/file") || exists(t, outside+"/file") {
			t.Error("the process was not confined by the policy")
		}
		got, err := f.processes.GetProcess(f.ctx, &execwirev1.GetProcessRequest{ProcessId: "p"})
		if err != nil {
			t.Fatal(err)
		}
		list, err := f.processes.ListProcesses(f.ctx, &execwirev1.ListProcessesRequest{})
		if err != nil || len(list.GetProcesses()) != 1 {
			t.Fatalf("%v, %v", list, err)
		}
		run := f.run(confinedCall(shell("run", "exit 3"), writable(inside)))
		run.mustEnd()
		if exit := run.out.exit; exit.GetExitCode() != 3 || exit.GetSandboxDenied() {
			t.Errorf("the run ended with %v", exit)
		}
		for from, report := range map[string]*execwirev1.SandboxReport{
			"start": started.GetSandbox(), "get": got.GetProcess().GetSandbox(), "list": list.GetProcesses()[0].GetSandbox(),
			"run": run.started.GetProcess().GetSandbox(),
		} {
			if report.GetBackend() != backend || !report.GetRestrictsFiles() || report.GetNetwork() != execwirev1.NetworkAccess_NETWORK_ACCESS_RESTRICTED {
				t.Errorf("%s: %v", from, report)
			}
			bubblewrap := backend == execwirev1.SandboxBackend_SANDBOX_BACKEND_BUBBLEWRAP
			if report.GetHidesProcesses() != bubblewrap || report.GetReportsSignalsAsCodes() != bubblewrap || report.GetFreezesMetadata() == bubblewrap {
				t.Errorf("%s: %v", from, report)
			}
		}
	})
}

func TestConfinedStart_NotEnforceable_DoesNotRun(t *testing.T) {
	proof := filepath.Join(realDirectory(t), "proof")
	script := "echo > " + proof
	none := sandboxesOf(t)
	holes := managed(special(execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_ROOT, execwirev1.SandboxAccess_SANDBOX_ACCESS_WRITE),
		place(realDirectory(t), execwirev1.SandboxAccess_SANDBOX_ACCESS_NONE))
	for name, tt := range map[string]struct {
		change func(*settings)
		req    *execwirev1.StartProcessRequest
	}{
		"no sandboxes": {func(*settings) {}, confinedCall(shell("p", script), writable(filepath.Dir(proof)))},
		"none works":   {func(s *settings) { s.sandboxes = none }, confinedCall(shell("p", script), writable(filepath.Dir(proof)))},
		"cannot be expressed": {func(s *settings) { s.sandboxes = sandboxesOf(t, sandbox.Landlock) },
			confinedCall(shell("p", script), holes)},
		"required":              {func(s *settings) { s.required = writable(filepath.Dir(proof)) }, shell("p", script)},
		"required of prepared":  {func(s *settings) { s.required = writable(filepath.Dir(proof)) }, prepared("p", "/bin/sh", "sh", "-c", script)},
		"required, and refused": {func(s *settings) { s.required = readOnly() }, confinedCall(shell("p", script), &execwirev1.SandboxPolicy{Policy: &execwirev1.SandboxPolicy_Disabled{}})},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, tt.change)
			_, err := f.processes.StartProcess(f.ctx, tt.req)
			expectFailure(t, err, codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_SANDBOX_UNAVAILABLE)
			run, err := f.processes.RunProcess(f.ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := run.Send(startMessage(tt.req, nil)); err != nil {
				t.Fatal(err)
			}
			_, err = run.Recv()
			expectFailure(t, err, codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_SANDBOX_UNAVAILABLE)
			if exists(t, proof) {
				t.Error("the program ran")
			}
		})
	}
}

// Whatever policy a request has, the process is confined by the server's policy and by
// that of the request.
func TestRequiredSandbox_CannotBeWeakened(t *testing.T) {
	required, own, outside := realDirectory(t), realDirectory(t), realDirectory(t)
	script := "for d in " + strings.Join([]string{required, own, outside}, " ") + "; do (echo > $d/$0) 2>/dev/null; done; echo said"
	disabled := &execwirev1.SandboxPolicy{Policy: &execwirev1.SandboxPolicy_Disabled{Disabled: &execwirev1.DisabledSandbox{}}}
	external := &execwirev1.SandboxPolicy{Policy: &execwirev1.SandboxPolicy_External{External: &execwirev1.ExternalSandbox{}}}
	unrestricted := &execwirev1.SandboxPolicy{Policy: &execwirev1.SandboxPolicy_Managed{Managed: &execwirev1.ManagedSandbox{
		Network:    execwirev1.NetworkAccess_NETWORK_ACCESS_ENABLED,
		FileSystem: &execwirev1.FileSystemPolicy{Policy: &execwirev1.FileSystemPolicy_Unrestricted{}}}}}
	direct := func(policy *execwirev1.SandboxPolicy) func(id string) *execwirev1.StartProcessRequest {
		return func(id string) *execwirev1.StartProcessRequest {
			return confinedCall(command(id, "/bin/sh", "-c", script, id), policy)
		}
	}
	eachBackend(t, func(t *testing.T, f *fixture, _ execwirev1.SandboxBackend) {
		for name, tt := range map[string]struct {
			req   func(id string) *execwirev1.StartProcessRequest
			wrote bool // to the directory that the server's policy grants
		}{
			"none":         {direct(nil), true},
			"disabled":     {direct(disabled), true},
			"external":     {direct(external), true},
			"unrestricted": {direct(unrestricted), true},
			"wider":        {direct(writable(required, own, outside)), true},
			"other":        {direct(writable(own)), false},
			"narrower":     {direct(readOnly()), false},
			"prepared": {func(id string) *execwirev1.StartProcessRequest {
				return prepared(id, "/bin/sh", "sh", "-c", script, id)
			}, true},
		} {
			id := f.t.Name()[strings.LastIndex(f.t.Name(), "/")+1:] + name
			p := f.start(tt.req(id))
			if watched := f.watch(&execwirev1.WatchProcessRequest{ProcessId: id}); watched.stdout() != "said\n" {
				t.Errorf("%s: %q, %v", name, watched.stdout(), watched.exit)
			}
			if report := p.GetSandbox(); !report.GetRestrictsFiles() || report.GetNetwork() != execwirev1.NetworkAccess_NETWORK_ACCESS_RESTRICTED {
				t.Errorf("%s: %v", name, report)
			}
			if wrote := exists(t, filepath.Join(required, id)); wrote != tt.wrote {
				t.Errorf("%s: it wrote to the granted directory: %v", name, wrote)
			}
			for _, dir := range []string{own, outside} {
				if exists(t, filepath.Join(dir, id)) {
					t.Errorf("%s: it wrote to %s", name, dir)
				}
			}
		}
	}, func(s *settings) { s.required = writable(required) })
}

func TestConfinedStart_TMPDIR_ComesFromRequestEnvironment(t *testing.T) {
	eachBackend(t, func(t *testing.T, f *fixture, _ execwirev1.SandboxBackend) {
		dir := realDirectory(t)
		policy := readOnly()
		restricted := policy.GetManaged().GetFileSystem().GetRestricted()
		restricted.Entries = append(restricted.Entries, special(execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_TMPDIR, execwirev1.SandboxAccess_SANDBOX_ACCESS_WRITE))
		for id, tmp := range map[string]string{"with": dir, "without": ""} {
			req := confinedCall(shell(id, "echo > "+dir+"/"+id), policy)
			if tmp != "" {
				req.GetCommand().GetDirect().Env["TMPDIR"] = tmp
			}
			f.start(req)
			f.waitClosed(id)
		}
		if !exists(t, dir+"/with") || exists(t, dir+"/without") {
			t.Error("the TMPDIR of the request's environment was not used")
		}
	})
}

func TestConfinedStart_MalformedPolicy_NamesField(t *testing.T) {
	f := newFixture(t)
	for field, policy := range map[string]*execwirev1.SandboxPolicy{
		"policy":                     {},
		"managed.file_system.policy": {Policy: &execwirev1.SandboxPolicy_Managed{}},
		"managed.file_system.restricted.entries[0].access": managed(place("/", 0)),
		"managed.file_system.restricted.entries[0].path":   managed(place("relative", execwirev1.SandboxAccess_SANDBOX_ACCESS_READ)),
	} {
		_, err := f.processes.StartProcess(f.ctx, confinedCall(shell("p", "true"), policy))
		expectFailure(t, err, codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD)
		if got, want := violatedField(err), "command.direct.sandbox."+field; got != want {
			t.Errorf("the violated field is %q, want %q (%v)", got, want, err)
		}
		run, err := f.processes.RunProcess(f.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := run.Send(startMessage(confinedCall(shell("p", "true"), policy), nil)); err != nil {
			t.Fatal(err)
		}
		_, err = run.Recv()
		if got, want := violatedField(err), "start.process.command.direct.sandbox."+field; got != want {
			t.Errorf("the violated field of a run is %q, want %q (%v)", got, want, err)
		}
	}
}
