package process

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/leakcheck"
	"github.com/execwire/execwire/internal/testproc"
)

// asNobody calls f on a thread with the file access of an unprivileged user, also if the tests run
// as root.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		f()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends here
		_, _, _ = unix.RawSyscall(unix.SYS_SETFSGID, 65534, 0, 0)
		_, _, _ = unix.RawSyscall(unix.SYS_SETFSUID, 65534, 0, 0)
		f()
	}()
	<-done
}

// sharedTempDir is a t.TempDir that other users may search.
func sharedTempDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{os.TempDir(), filepath.Dir(dir), dir} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func write(t *testing.T, path, text string, mode os.FileMode) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func mkdir(t *testing.T, path string, mode os.FileMode) string {
	t.Helper()
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestStart_InvalidSpec_NamesField(t *testing.T) {
	leakcheck.Check(t)
	s := newSupervisor(t, Config{})
	nul := "a\x00b"
	for _, test := range []struct {
		field string
		spec  func(*Spec)
	}{
		{"argv", func(s *Spec) { s.Argv = nil }},
		{"argv[0]", func(s *Spec) { s.Argv = []string{""} }},
		{"argv[0]", func(s *Spec) { s.Argv[0] = nul }},
		{"argv[2]", func(s *Spec) { s.Argv = []string{"true", "x", nul} }},
		{"arg0", func(s *Spec) { s.Arg0 = &nul }},
		{"executable", func(s *Spec) { s.Executable = "bin/true" }},
		{"executable", func(s *Spec) { s.Executable = "/" + nul }},
		{"cwd", func(s *Spec) { s.Cwd = "" }},
		{"cwd", func(s *Spec) { s.Cwd = "tmp" }},
		{"cwd", func(s *Spec) { s.Cwd = "/" + nul }},
		{"env[1]", func(s *Spec) { s.Env = []string{"A=1", "B"} }},
		{`env[""]`, func(s *Spec) { s.Env = []string{"=" + nul} }},
		{`env["A"]`, func(s *Spec) { s.Env = []string{"A=" + nul} }},
		{"timeout", func(s *Spec) { s.Timeout = -1 }},
	} {
		spec := Spec{Argv: []string{"true"}, Cwd: "/"}
		test.spec(&spec)
		_, err := s.Start(testContext(t), spec)
		wantKind(t, err, InvalidArgument)
		if typed, ok := err.(*Error); !ok || typed.Field != test.field || !strings.Contains(err.Error(), test.field+": ") {
			t.Errorf("%s: %v", test.field, err)
		}
		if strings.Contains(fmt.Sprint(err), "\x00") {
			t.Errorf("%s: the message holds the value", test.field)
		}
	}
}

func TestStart_ErrorKinds(t *testing.T) {
	leakcheck.Check(t)
	s := newSupervisor(t, Config{})
	dir := sharedTempDir(t)
	text := write(t, dir+"/text", "no program\n", 0o644)
	unformatted := write(t, dir+"/unformatted", "no program\n", 0o755)
	orphan := write(t, dir+"/orphan", "#!/no/such/interpreter\n", 0o755)
	binary := write(t, dir+"/binary", "\x7fELF garbage", 0o755)
	hidden := mkdir(t, dir+"/hidden", 0o700)
	write(t, hidden+"/tool", "#!/bin/sh\n", 0o755)
	if err := os.Symlink("loop", dir+"/loop"); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name    string
		argv    string
		cwd     string
		env     string
		want    Kind
		subject string
		says    string
	}{
		{"not in PATH", "no-such-tool", "/", "PATH=/bin:/usr/bin", ProgramNotFound, "no-such-tool", "directories of PATH"},
		{"not in default PATH", "no-such-tool", "/", "", ProgramNotFound, "no-such-tool", "directories of PATH"},
		{"empty PATH", "true", "/bin", "PATH=", ProgramNotFound, "true", "set PATH"},
		{"wrong PATH", "true", "/", "PATH=/no/such/dir", ProgramNotFound, "true", "set PATH"},
		{"missing path", "/no/such/tool", "/", "", ProgramNotFound, "/no/such/tool", "no such file"},
		{"missing relative path", "./tool", dir, "", ProgramNotFound, dir + "/./tool", "no such file"},
		{"through a file", text + "/tool", "/", "", ProgramNotFound, text + "/tool", "not a directory"},
		{"symbolic link loop", dir + "/loop", "/", "", ProgramNotFound, dir + "/loop", "symbolic links"},
		{"no execute permission", text, "/", "", NotExecutable, text, "execute permission"},
		{"no execute permission in PATH", "text", "/", "PATH=/bin:" + dir, NotExecutable, text, "execute permission"},
		{"directory", dir, "/", "", NotExecutable, dir, "is a directory"},
		{"directory in PATH", "hidden", "/", "PATH=" + dir, NotExecutable, hidden, "is a directory"},
		{"no shebang", unformatted, "/", "", NotExecutable, unformatted, "exec format"},
		{"broken binary", binary, "/", "", NotExecutable, binary, "exec format"},
		{"missing interpreter", orphan, "/", "", NotExecutable, orphan, "interpreter"},
		{"hidden program", hidden + "/tool", "/", "", PermissionDenied, hidden + "/tool", "set another PATH"},
		{"missing cwd", "true", dir + "/nowhere", "", BadWorkingDirectory, dir + "/nowhere", "does not exist"},
		{"cwd is a file", "true", text, "", BadWorkingDirectory, text, "not a directory"},
		{"hidden cwd", "true", hidden, "", BadWorkingDirectory, hidden, "may not be searched"},
		{"missing cwd and program", "/no/such/tool", dir + "/nowhere", "", BadWorkingDirectory, dir + "/nowhere", "does not exist"},
	} {
		t.Run(test.name, func(t *testing.T) {
			spec := Spec{Argv: []string{test.argv}, Cwd: test.cwd}
			if test.env != "" {
				spec.Env = []string{test.env}
			}
			for _, terminal := range []*WindowSize{nil, {}} {
				spec.Terminal = terminal
				asNobody(t, func() {
					_, err := s.Start(testContext(t), spec)
					wantKind(t, err, test.want)
					if typed, ok := err.(*Error); !ok || typed.Subject != test.subject || !strings.Contains(err.Error(), test.says) {
						t.Errorf("%v, want subject %q and %q", err, test.subject, test.says)
					}
				})
			}
		})
	}
}

func TestStart_TooManyArguments_ArgumentListTooLong(t *testing.T) {
	leakcheck.Check(t)
	s := newSupervisor(t, Config{})
	_, err := s.Start(testContext(t), Spec{Argv: []string{"true", strings.Repeat("x", 1<<20)}, Cwd: "/"})
	wantKind(t, err, ArgumentListTooLong)
	_, err = s.Start(testContext(t), Spec{Argv: []string{"true"}, Cwd: "/", Env: []string{"A=" + strings.Repeat("x", 1<<20)}})
	wantKind(t, err, ArgumentListTooLong)
}

func TestStart_NoDescriptors_LeaksNothing(t *testing.T) {
	leakcheck.Check(t)
	s := newSupervisor(t, Config{})
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
			t.Fatal(err)
		}
	}()
	failed := 0
	for _, terminal := range []*WindowSize{nil, {}} {
		for spare := range 12 {
			if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
				t.Fatal(err)
			}
			free := nextDescriptor(t)
			if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(free + spare), Max: old.Max}); err != nil {
				t.Fatal(err)
			}
			spec := Spec{Argv: []string{"true"}, Cwd: "/", PipeStdin: true, Terminal: terminal}
			p, err := s.Start(testContext(t), spec)
			if err != nil {
				failed++
				wantKind(t, err, ResourceLimit)
				continue
			}
			waitClosed(t, p)
		}
	}
	if failed < 8 {
		t.Errorf("only %d starts failed", failed)
	}
}

// A child moves its descriptors if their numbers overlap. Whether it has to depends on what else is
// open.
func TestClassifyExecError_EBADF_ResourceLimit(t *testing.T) {
	spec := Spec{Argv: []string{"true"}, Cwd: "/"}
	wantKind(t, spec.classifyExecError("/bin/true", unix.EBADF), ResourceLimit)
}

func nextDescriptor(t *testing.T) int {
	t.Helper()
	fd, err := unix.Open("/", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(fd)
	return fd
}

func TestStart_ProgramLookup(t *testing.T) {
	dir := t.TempDir()
	mkdir(t, dir+"/bin", 0o755)
	mkdir(t, dir+"/first", 0o755)
	write(t, dir+"/bin/tool", "#!/bin/sh\necho found as $0 in $(pwd)\n", 0o755)
	write(t, dir+"/first/tool", "not executable", 0o644)
	for _, test := range []struct{ argv, cwd, path, want string }{
		{"tool", "/", "PATH=/bin:" + dir + "/bin", "found as " + dir + "/bin/tool in /"},
		{"tool", "/", "PATH=" + dir + "/first:" + dir + "/bin:/bin", "found as " + dir + "/bin/tool in /"},
		{"tool", dir, "PATH=bin:/bin", "found as bin/tool in " + dir},
		{"tool", dir + "/bin", "PATH=:/bin", "found as ./tool in " + dir + "/bin"},
		{"./bin/tool", dir, "PATH=/bin", "found as ./bin/tool in " + dir},
		{"bin/tool", dir, "PATH=/bin", "found as bin/tool in " + dir},
		{dir + "/bin/tool", "/usr", "PATH=/bin", "found as " + dir + "/bin/tool in /usr"},
	} {
		output, _ := run(t, Spec{Argv: []string{test.argv}, Cwd: test.cwd, Env: []string{test.path}})
		if output.stdout != test.want+"\n" {
			t.Errorf("%+v: %q, %q", test, output.stdout, output.stderr)
		}
	}
	output, _ := run(t, Spec{Argv: []string{"echo", "default"}, Cwd: "/"})
	if output.stdout != "default\n" {
		t.Errorf("without PATH: %+v", output)
	}
}

func TestStart_Executable(t *testing.T) {
	spec := Spec{Argv: []string{"sh", "-c", "echo $0 $1", "zero", "one"}, Executable: "/bin/sh", Cwd: "/", Env: []string{"PATH=/nowhere"}}
	if output, _ := run(t, spec); output.stdout != "zero one\n" {
		t.Errorf("%+v", output)
	}
}

func TestStart_Arg0(t *testing.T) {
	for _, arg0 := range []string{"custom", ""} {
		for _, terminal := range []*WindowSize{nil, {}} {
			spec := program("args", "x")
			spec.Arg0, spec.Terminal = &arg0, terminal
			output, _ := run(t, spec)
			got := decode[[]string](t, output.stdout+output.terminal)
			if len(got) != 2 || got[0] != arg0 || got[1] != "x" {
				t.Errorf("argv %q", got)
			}
		}
	}
}

func TestStart_EnvironmentIsExact(t *testing.T) {
	for _, terminal := range []*WindowSize{nil, {}} {
		spec := Spec{Argv: []string{"env"}, Cwd: "/", Terminal: terminal}
		spec.Env = []string{"B=2", "A=", "WITH SPACE=x=y", "Ä=ö", "B=3", "=nameless"}
		output, _ := run(t, spec)
		got := strings.ReplaceAll(output.stdout+output.terminal, "\r", "")
		if got != strings.Join(spec.Env, "\n")+"\n" {
			t.Errorf("got %q", got)
		}
	}
}

func TestStart_ChildHasOwnSessionAndDescriptors(t *testing.T) {
	leak, err := os.Open("/") // close-on-exec, as everything Go opens
	if err != nil {
		t.Fatal(err)
	}
	defer leak.Close()
	cwd := t.TempDir()
	spec := program("status")
	spec.Cwd = cwd
	output, _ := run(t, spec)
	got := decode[testproc.Status](t, output.stdout)
	if got.SID != got.PID || got.PGID != got.PID || got.PPID != os.Getpid() || got.Terminal || got.ControllingTerminal {
		t.Errorf("%+v", got)
	}
	if resolved, _ := filepath.EvalSymlinks(cwd); got.Cwd != resolved {
		t.Errorf("cwd %q, want %q", got.Cwd, resolved)
	}
	if len(got.Descriptors) != 3 || got.Descriptors[0] != "/dev/null" || len(got.NonBlocking) != 0 {
		t.Errorf("descriptors %v, non-blocking %v", got.Descriptors, got.NonBlocking)
	}
}

func TestStart_BusyProgram_IsRetried(t *testing.T) {
	s := newSupervisor(t, Config{})
	path := write(t, t.TempDir()+"/tool", "#!/bin/sh\n", 0o755)
	busy, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Start(testContext(t), Spec{Argv: []string{path}, Cwd: "/"})
	wantKind(t, err, NotExecutable) // it stays busy
	released := make(chan struct{})
	go func() {
		defer close(released)
		_ = busy.Close()
	}()
	p, err := s.Start(testContext(t), Spec{Argv: []string{path}, Cwd: "/"})
	<-released
	if err != nil {
		t.Fatal(err)
	}
	waitClosed(t, p)
}

func TestDefaultDirectory(t *testing.T) {
	home := t.TempDir()
	if err := os.WriteFile(home+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for variable, want := range map[string]string{home: home, "": "/", home + "/missing": "/", home + "/file": "/", ".": "/"} {
		t.Setenv("HOME", variable)
		if got := DefaultDirectory(nil); got != want {
			t.Errorf("with HOME=%q it is %s", variable, got)
		}
	}
}
