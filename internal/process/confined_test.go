package process

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/procfs"
	"github.com/execwire/execwire/internal/sandbox"
)

// readOnly grants read access to everything.
var readOnly = sandbox.Policy{Entries: []sandbox.Entry{{Special: sandbox.SpecialRoot, Access: sandbox.AccessRead}}}

// eachBackend runs a test for each backend.
func eachBackend(t *testing.T, test func(t *testing.T, confine func(sandbox.Policy) *sandbox.Confinement)) {
	t.Helper()
	for _, backend := range []sandbox.Backend{sandbox.Bubblewrap, sandbox.Landlock} {
		t.Run(backend.String(), func(t *testing.T) { test(t, confinedBy(t, backend)) })
	}
}

// confinedBy returns a function that confines with one backend, which has to work.
func confinedBy(t testing.TB, backend sandbox.Backend) func(sandbox.Policy) *sandbox.Confinement {
	t.Helper()
	without := map[sandbox.Backend][]sandbox.Backend{sandbox.Bubblewrap: {sandbox.Landlock}, sandbox.Landlock: {sandbox.Bubblewrap}}
	sandboxes := sandbox.New(sandbox.Options{Without: without[backend]})
	t.Cleanup(sandboxes.Close)
	return func(policy sandbox.Policy) *sandbox.Confinement {
		t.Helper()
		plan, err := policy.Resolve(testContext(t), sandbox.ResolveOptions{})
		if err != nil {
			t.Fatal(err)
		}
		confinement, err := sandboxes.Confine(plan)
		if err != nil {
			t.Fatal(err)
		}
		return confinement
	}
}

// confined returns a Spec with a sandbox.
func confined(spec Spec, by *sandbox.Confinement) Spec {
	spec.Sandbox = by
	return spec
}

// directory returns a new directory without symbolic links in its path.
func directory(t testing.TB) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// writableOnly grants read access to everything, and write access to one directory.
func writableOnly(dir string) sandbox.Policy {
	return sandbox.Policy{Entries: append([]sandbox.Entry{{Path: dir, Access: sandbox.AccessWrite}}, readOnly.Entries...)}
}

func TestStart_Confined_PassesArgumentsEnvironmentAndDirectory(t *testing.T) {
	eachBackend(t, func(t *testing.T, confine func(sandbox.Policy) *sandbox.Confinement) {
		by := confine(readOnly)
		arg0 := "another name"
		spec := confined(program("args", "", "a b", "--"), by)
		spec.Arg0 = &arg0
		output, record := run(t, spec)
		if text := decode[[]string](t, output.stdout); !reflect.DeepEqual(text, []string{arg0, "", "a b", "--"}) || record.Code != 0 {
			t.Errorf("arguments: %q, %+v", text, record)
		}
		t.Setenv("EXECWIRE_TEST_SECRET", "of the server")
		env := []string{"B=1", "A=", "B=2", "PWD=elsewhere"}
		output, _ = run(t, confined(Spec{Argv: []string{"/bin/cat", "/proc/self/environ"}, Cwd: "/", Env: env}, by))
		if want := strings.Join(env, "\x00") + "\x00"; output.stdout != want {
			t.Errorf("environment: %q, want %q", output.stdout, want)
		}
		output, _ = run(t, confined(Spec{Argv: []string{"pwd"}, Cwd: "/usr/bin", Env: nil}, by))
		if output.stdout != "/usr/bin\n" {
			t.Errorf("directory: %q", output.stdout)
		}
	})
}

func TestWriteStdin_Confined(t *testing.T) {
	eachBackend(t, func(t *testing.T, confine func(sandbox.Policy) *sandbox.Confinement) {
		spec := confined(shell("cat; echo closed >&2"), confine(readOnly))
		spec.PipeStdin = true
		p := start(t, spec)
		if err := errors.Join(p.WriteStdin(testContext(t), []byte("hello\n")), p.CloseStdin(testContext(t))); err != nil {
			t.Fatal(err)
		}
		if output := readLog(t, p).all(); output.stdout != "hello\n" || output.stderr != "closed\n" {
			t.Errorf("%+v", output)
		}
		if record := waitClosed(t, p); record.Code != 0 || record.Cause != CauseExited || record.SandboxDenied {
			t.Errorf("%+v", record)
		}
	})
}

func TestExitRecord_Confined(t *testing.T) {
	eachBackend(t, func(t *testing.T, confine func(sandbox.Policy) *sandbox.Confinement) {
		by := confine(readOnly)
		for _, code := range []string{"0", "1", "42", "255"} {
			spec := confined(shell("exit "+code), by)
			if _, record := run(t, spec); record.Signal != 0 || record.Cause != CauseExited || code != jsonText(record.Code) {
				t.Errorf("exit %s: %+v", code, record)
			}
		}
		p := start(t, confined(program("signal-self", "15"), by))
		record := waitClosed(t, p)
		report, ok := p.Sandbox()
		if !ok || report != by.Report() {
			t.Errorf("it reports %+v, %v", report, ok)
		}
		if report.ExitByCode && (record.Signal != 0 || record.Code != 128+15) || !report.ExitByCode && record.Signal != syscall.SIGTERM {
			t.Errorf("signal 15: %+v", record)
		}
	})
}

func jsonText(v any) string { text, _ := json.Marshal(v); return string(text) }

func TestStart_Confined_WriteOutsideIsDenied(t *testing.T) {
	eachBackend(t, func(t *testing.T, confine func(sandbox.Policy) *sandbox.Confinement) {
		dir := directory(t)
		inside := filepath.Join(dir, "inside")
		if err := os.Mkdir(inside, 0o700); err != nil {
			t.Fatal(err)
		}
		outside := filepath.Join(dir, "outside")
		script := "echo x > " + inside + "/file && echo y > " + outside
		output, record := run(t, confined(shell(script), confine(writableOnly(inside))))
		if record.Code == 0 || !record.SandboxDenied {
			t.Errorf("%+v, %+v", output, record)
		}
		if text, err := os.ReadFile(inside + "/file"); string(text) != "x\n" {
			t.Errorf("the file inside has %q: %v", text, err)
		}
		if _, err := os.Lstat(outside); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the file outside: %v", err)
		}
	})
}

// A failed confined start returns the same kinds of errors as any other, and leaves nothing behind.
func TestStart_ConfinedErrors(t *testing.T) {
	dir := directory(t)
	files := map[string]string{"script": "#!/nowhere/sh\n", "text": "hello"}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	hidden := filepath.Join(dir, "hidden")
	if err := errors.Join(os.Mkdir(hidden, 0o755), os.WriteFile(hidden+"/true", []byte("#!/bin/sh\n"), 0o755)); err != nil {
		t.Fatal(err)
	}
	onlySystem := sandbox.Policy{Entries: []sandbox.Entry{{Special: sandbox.SpecialMinimal, Access: sandbox.AccessRead}}}
	eachBackend(t, func(t *testing.T, confine func(sandbox.Policy) *sandbox.Confinement) {
		cgroups := withCgroups(t)
		s := newSupervisor(t, Config{AdoptOrphans: true, Cgroups: cgroups})
		everything, system, nothing := confine(readOnly), confine(onlySystem), confine(sandbox.Policy{})
		before := descriptors(t)
		for name, tt := range map[string]struct {
			spec Spec
			want Kind
		}{
			"missing":           {confined(Spec{Argv: []string{dir + "/missing"}, Cwd: "/"}, everything), ProgramNotFound},
			"no interpreter":    {confined(Spec{Argv: []string{dir + "/script"}, Cwd: "/"}, everything), NotExecutable},
			"no program":        {confined(Spec{Argv: []string{dir + "/text"}, Cwd: "/"}, everything), NotExecutable},
			"directory":         {confined(Spec{Argv: []string{dir}, Cwd: "/"}, everything), NotExecutable},
			"not granted":       {confined(Spec{Argv: []string{hidden + "/true"}, Cwd: "/"}, system), ProgramNotFound},
			"nothing granted":   {confined(Spec{Argv: []string{"/bin/true"}, Cwd: "/"}, nothing), ProgramNotFound},
			"missing directory": {confined(Spec{Argv: []string{"true"}, Cwd: dir + "/missing"}, everything), BadWorkingDirectory},
			"long argument":     {confined(Spec{Argv: []string{"true", strings.Repeat("x", 3<<20)}, Cwd: "/"}, everything), ArgumentListTooLong},
		} {
			_, err := s.Start(testContext(t), tt.spec)
			if wantKind(t, err, tt.want); err == nil {
				t.Errorf("%s was started", name)
			}
			t.Logf("%s: %v", name, err)
		}
		spec := confined(Spec{Argv: []string{"true"}, Cwd: "/", Env: []string{"PATH=" + hidden + ":/usr/bin"}}, system)
		p, err := s.Start(testContext(t), spec) // PATH entries that are not granted are skipped
		if err != nil {
			t.Fatal(err)
		}
		if record := waitClosed(t, p); record.Code != 0 {
			t.Errorf("%+v", record)
		}
		if err := tracker.waitForOrphans(testContext(t)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("%d descriptors before, now %q; children %+v", before, openFiles(t), childrenLeft(t))
			}
		})
		poll(t, "nothing to be left", func() bool { return descriptors(t) <= before && len(childrenLeft(t)) == 0 })
	})
}

func descriptors(t testing.TB) int {
	t.Helper()
	return len(openFiles(t))
}

// openFiles lists what the descriptors of this program refer to.
func openFiles(t testing.TB) (targets []string) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		target, _ := os.Readlink("/proc/self/fd/" + entry.Name())
		targets = append(targets, entry.Name()+" "+target)
	}
	return targets
}

// A working directory that the policy does not grant is rejected with any backend.
func TestStart_ConfinedDirectoryNotGranted_BadWorkingDirectory(t *testing.T) {
	eachBackend(t, func(t *testing.T, confine func(sandbox.Policy) *sandbox.Confinement) {
		dir := directory(t)
		by := confine(sandbox.Policy{Entries: []sandbox.Entry{{Special: sandbox.SpecialMinimal, Access: sandbox.AccessRead}}})
		_, err := newSupervisor(t, Config{}).Start(testContext(t), confined(Spec{Argv: []string{"true"}, Cwd: dir}, by))
		var typed *Error
		if !errors.As(err, &typed) || typed.Kind != BadWorkingDirectory || typed.Subject != dir {
			t.Errorf("%v", err)
		}
	})
}

// A path of the policy has changed since it was resolved.
func TestStart_SandboxSetupFails_ExecutesNothing(t *testing.T) {
	eachBackend(t, func(t *testing.T, confine func(sandbox.Policy) *sandbox.Confinement) {
		dir := directory(t)
		location, proof := filepath.Join(dir, "location"), filepath.Join(dir, "proof")
		if err := os.Mkdir(location, 0o755); err != nil {
			t.Fatal(err)
		}
		by := confine(writableOnly(location))
		if err := errors.Join(os.Remove(location), os.Symlink(dir, location)); err != nil {
			t.Fatal(err)
		}
		s := newSupervisor(t, Config{})
		_, err := s.Start(testContext(t), confined(shell("echo > "+proof), by))
		wantKind(t, err, SandboxNotStarted)
		if _, err := os.Lstat(proof); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the program ran: %v", err)
		}
	})
}

// The end of the context aborts a confined start that hangs.
func TestStart_ContextEnds_AbortsHangingConfinedStart(t *testing.T) {
	by := hangingBubblewrap(t, directory(t), "exec sleep 1000")
	s := newSupervisor(t, Config{AdoptOrphans: true})
	why := errors.New("the caller has gone")
	ctx, cancel := context.WithCancelCause(testContext(t))
	failed := make(chan error, 1)
	go func() {
		_, err := s.Start(ctx, confined(shell("true"), by))
		failed <- err
	}()
	hanging := func() (pids []int) {
		procs, err := procfs.List()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range procs {
			if p.PPID != os.Getpid() {
				continue
			}
			if comm, _ := os.ReadFile("/proc/" + jsonText(p.PID) + "/comm"); string(comm) == "sleep\n" {
				pids = append(pids, p.PID)
			}
		}
		return pids
	}
	poll(t, "the sandbox", func() bool { return len(hanging()) > 0 })
	cancel(why)
	if err := <-failed; !errors.Is(err, why) {
		t.Errorf("%v", err)
	}
	if left := hanging(); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}

func TestResourceLimits_Confined(t *testing.T) {
	eachBackend(t, func(t *testing.T, confine func(sandbox.Policy) *sandbox.Confinement) {
		spec := confined(shell("ulimit -n; ulimit -f; nice"), confine(readOnly))
		spec.ResourceLimits = []Limit{{Resource: ResourceOpenFiles, Soft: 64, Hard: 64}, {Resource: ResourceFileBytes, Soft: 1024, Hard: 1024}}
		spec.Nice = 3
		output, record := run(t, spec)
		nice, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
		if err != nil {
			t.Fatal(err)
		}
		if want := "64\n2\n" + jsonText(min(20-nice+3, 19)) + "\n"; output.stdout != want || record.Code != 0 {
			t.Errorf("%+v, want %q: %+v", output, want, record)
		}
	})
}
